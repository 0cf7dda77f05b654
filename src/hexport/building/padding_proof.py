"""Whether a bucket may serve smaller sizes: the original model is asked, at the true size and filled up.

sample ─► original at its size ──────────────────────────► y      ⎫
   └─► filled up ─► original at the bucket's size ─► cut ─► y′    ⎭ compared

A mask that is 0 where nothing is makes the two equal; a convolution, a mean or a softmax over the whole
length does not. Nothing is assumed: where they differ, the dim serves its own sizes only, and it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log10
from typing import TYPE_CHECKING

from hexport.building.buckets import Sizes
from hexport.building.cropping import NoRule, find_crops
from hexport.building.shortening import shortened
from hexport.building.signature import Places
from hexport.observe.comparing import compare
from hexport.observe.decibels import finite
from hexport.packaging.manifest import Contract, Crop, Number
from hexport.runtime.padding import cut, pad

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample
    from hexport.observe.comparing import Outputs

EQUAL_DB = 40.0
"""What filling up may change: less than the NPU's own rounding mostly does."""

Run = Callable[["Sequence[Sample]"], "Sequence[Outputs] | None"]
"""The original on the CPU; None where it does not take the size of one of the samples."""


@dataclass(frozen=True)
class Proof:
    """What was found for one dim."""

    dim: str
    padded: bool
    """Whether smaller sizes may be filled up."""
    lowest_db: float | None
    """The worst that filling up did; None when it could not be tried."""
    sizes: tuple[int, ...]
    """The true sizes that were tried."""
    reason: str
    crops: tuple[Crop, ...] = ()

    def to_json(self) -> dict[str, object]:
        """For reports."""
        return {
            "dim": self.dim,
            "padded": self.padded,
            "lowest_db": None if self.lowest_db is None else finite(self.lowest_db),
            "tried": list(self.sizes),
            "reason": self.reason,
        }

    def sentence(self) -> str:
        """For people."""
        if self.padded:
            close = "exact" if self.lowest_db == inf else f"{self.lowest_db:.0f} dB at least"
            return f"{self.dim}: smaller sizes are filled up, and the results stay the same ({close})"
        return f"{self.dim}: only the exact sizes run on the NPU, {self.reason}; others are for the CPU"


def prove(
    dim: str,
    places: Places,
    buckets: Sequence[Sizes],
    sample: Sample,
    values: Mapping[str, Number],
    run: Run,
) -> Proof:
    """Try sizes below each bucket along ``dim``. ``sample`` has the largest bucket's shapes."""
    ends = sorted({bucket.dims[dim] for bucket in buckets})

    def shapes_at(size: int) -> dict[str, tuple[int, ...]] | None:
        outputs = run([shortened(sample, places, {dim: size})])
        return None if outputs is None else {name: array.shape for name, array in outputs[0].items()}

    try:
        crops = find_crops(dim, ends[-1], shapes_at)
    except NoRule as error:
        return Proof(dim, False, None, (), f"because {error}")
    lowest, tried = inf, []
    for end, sizes in _true_sizes(ends):
        for size in sizes:
            true = shortened(sample, places, {dim: size})
            close = _closeness(true, {dim: (size, end)}, places, values, crops, run)
            if close is not None:
                tried.append(size)
                lowest = min(lowest, close)
    if not tried:
        return Proof(dim, False, None, (), "because the model takes no size between them")
    if lowest < EQUAL_DB:
        return Proof(dim, False, lowest, tuple(tried), f"because filling up changes results ({_db(lowest)})")
    return Proof(dim, True, lowest, tuple(tried), "", crops)


def prove_together(
    proofs: Sequence[Proof],
    places: Places,
    buckets: Sequence[Sizes],
    sample: Sample,
    values: Mapping[str, Number],
    run: Run,
) -> tuple[Proof, ...]:
    """The same proofs, if they also hold for every bucket with all of its dims filled up at once.

    An output's axis may have a size that follows from two dims, which no dim alone shows.
    """
    dims = [proof.dim for proof in proofs if proof.padded]
    varied = [proof.dim for proof in proofs]
    crops = tuple(crop for proof in proofs if proof.padded for crop in proof.crops)
    if len(varied) < 2 or not dims:
        return tuple(proofs)
    for bucket in buckets:
        own = {dim: bucket.dims[dim] for dim in varied}
        sizes = {dim: (max(1, own[dim] - max(1, own[dim] // 4)), own[dim]) for dim in dims}
        true = shortened(sample, places, {**own, **{dim: size for dim, (size, _) in sizes.items()}})
        close = _closeness(true, sizes, places, values, crops, run)
        if close is not None and close < EQUAL_DB:
            reason = f"because filling up in bucket {bucket.name} changes results ({_db(close)})"
            return tuple(
                replace(p, padded=False, lowest_db=close, reason=reason, crops=()) if p.padded else p
                for p in proofs
            )
    return tuple(proofs)


def _closeness(
    true: Sample,
    sizes: Mapping[str, tuple[int, int]],
    places: Places,
    values: Mapping[str, Number],
    crops: tuple[Crop, ...],
    run: Run,
) -> float | None:
    """How close ``true`` comes when it is filled up; dim -> its size, and the bucket's. None: not taken."""
    filled = dict(true)
    for dim, (_, end) in sizes.items():
        axes = places[dim]
        filled = {n: pad(a, _at(a.shape, n, axes, end), _fill(n, axes, values)) for n, a in filled.items()}
    results = run([true, filled])
    if results is None:
        return None
    right, got = results
    sizes_before = {dim: size for dim, (size, _) in sizes.items()}
    compared = compare([right], [cut(got, Contract((), (), crops=crops), sizes_before)])
    return min([compared.lowest_db, *(_peak_db(right[o.name], o.worst_error) for o in compared.outputs)])


def _peak_db(array: NDArray[np.generic], worst: float) -> float:
    """The largest error against the largest number: a wrong edge is lost in the mean of a long row."""
    import numpy as np

    if not worst or array.dtype.kind not in "fiu" or not array.size:
        return inf
    peak = float(np.abs(array.astype(np.float64)).max())
    return 20 * log10(peak / worst) if peak and worst < inf else -inf


def _true_sizes(ends: Sequence[int]) -> list[tuple[int, list[int]]]:
    """For each bucket: just above the one before, in the middle, just below it."""
    found = []
    for before, end in zip((0, *ends), ends, strict=False):
        sizes = {before + 1, (before + end) // 2, end - 1}
        found.append((end, sorted(size for size in sizes if before < size < end)))
    return found


def _db(value: float) -> str:
    return "beyond comparison" if value == -inf else f"{value:.0f} dB"


def _at(shape: tuple[int, ...], name: str, axes: Sequence[tuple[str, int]], size: int) -> tuple[int, ...]:
    mine = {axis for other, axis in axes if other == name}
    return tuple(size if axis in mine else old for axis, old in enumerate(shape))


def _fill(name: str, axes: Sequence[tuple[str, int]], values: Mapping[str, Number]) -> dict[int, Number]:
    return {axis: values.get(name, 0) for other, axis in axes if other == name}
