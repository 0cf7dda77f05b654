"""Whether a bucket may serve smaller sizes: the original model is asked, at the true size and filled up.

sample ─► original at its size ──────────────────────────► y      ⎫
   └─► filled up ─► original at the bucket's size ─► cut ─► y′    ⎭ compared

A mask that is 0 where nothing is makes the two equal; a convolution, a mean or a softmax over the whole
length does not. Nothing is assumed: where they differ, the dim serves its own sizes only, and it is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log10
from typing import TYPE_CHECKING

from hexport.building.buckets import Sizes
from hexport.building.cropping import NoRule, find_crops
from hexport.building.shortening import shortened
from hexport.building.signature import Places, Sums, completed
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
MOST_SAMPLES = 3
"""Each size is tried with so many where there are as many."""
PATIENCE_SECONDS = 120.0
"""After it each size is tried with one sample only."""

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
    samples: int = 0
    """How many each size was tried with."""
    left_out: int = 0
    """Comparisons that there was no time for; of every size at least one was made."""

    def to_json(self) -> dict[str, object]:
        """For reports."""
        return {
            "dim": self.dim,
            "padded": self.padded,
            "lowest_db": None if self.lowest_db is None else finite(self.lowest_db),
            "tried": list(self.sizes),
            "samples": self.samples,
            "left_out": self.left_out,
            "reason": self.reason,
        }

    def sentence(self) -> str:
        """For people."""
        if self.padded:
            close = "exact" if self.lowest_db == inf else f"{self.lowest_db:.0f} dB at least"
            on = f"{len(set(self.sizes))} sizes, {self.samples} samples each"
            short = f", {self.left_out} of those left out for time" if self.left_out else ""
            told = f"({close}; {on}{short})"
            return f"{self.dim}: smaller sizes are filled up, and the results stay the same {told}"
        return f"{self.dim}: only the exact sizes run on the NPU, {self.reason}; others are for the CPU"


@dataclass
class Trial:
    """The original model, what it is tried on, and for how long."""

    places: Places
    buckets: Sequence[Sizes]
    samples: Sequence[Sample]
    """With the largest bucket's shapes; the first counts most, when time is short."""
    values: Mapping[str, Number]
    run: Run
    sums: Sums = field(default_factory=dict)
    """Dims that follow from others."""
    patience: float = PATIENCE_SECONDS
    left_out: int = 0
    _began: float = field(default_factory=time.monotonic)

    def shortened(self, sample: Sample, dims: Mapping[str, int]) -> Sample:
        """``sample`` at smaller sizes of ``dims``, and of what they add up to."""
        return shortened(sample, self.places, self._complete(dims))

    def closeness(
        self, own: Mapping[str, int], sizes: Mapping[str, tuple[int, int]], crops: tuple[Crop, ...]
    ) -> float | None:
        """How close samples come that are filled up; dim -> true size, and the bucket's. None: not taken.

        ``own`` are the sizes of dims that are not filled up, and differ from the largest bucket's.
        """
        in_time = time.monotonic() - self._began < self.patience
        chosen = self.samples if in_time else self.samples[:1]
        self.left_out += len(self.samples) - len(chosen)
        before = {dim: size for dim, (size, _) in sizes.items()}
        ends = self._complete({**own, **{dim: end for dim, (_, end) in sizes.items()}})
        true = [self.shortened(sample, {**own, **before}) for sample in chosen]
        results = self.run([*true, *(self._filled(sample, ends) for sample in true)])
        if results is None:
            return None
        contract = Contract((), (), crops=crops)
        right, got = results[: len(true)], [cut(one, contract, before) for one in results[len(true) :]]
        return min(_closeness(one, other) for one, other in zip(right, got, strict=True))

    def _complete(self, dims: Mapping[str, int]) -> dict[str, int]:
        return completed(dims, self.buckets[-1].dims, self.sums)

    def _filled(self, sample: Sample, ends: Mapping[str, int]) -> Sample:
        filled = dict(sample)
        for dim, end in ends.items():
            axes = self.places[dim]
            filled = {
                name: pad(array, _at(array.shape, name, axes, end), _fill(name, axes, self.values))
                for name, array in filled.items()
            }
        return filled


def prove(dim: str, trial: Trial) -> Proof:
    """Try sizes below each bucket along ``dim``."""
    ends = sorted({bucket.dims[dim] for bucket in trial.buckets})

    def shapes_at(size: int) -> dict[str, tuple[int, ...]] | None:
        outputs = trial.run([trial.shortened(trial.samples[0], {dim: size})])
        return None if outputs is None else {name: array.shape for name, array in outputs[0].items()}

    try:
        crops = find_crops(dim, ends[-1], shapes_at)
    except NoRule as error:
        return Proof(dim, False, None, (), f"because {error}")
    left_before = trial.left_out
    lowest, tried = inf, []
    for end, sizes in _true_sizes(ends):
        for size in sizes:
            close = trial.closeness({}, {dim: (size, end)}, crops)
            if close is not None:
                tried.append(size)
                lowest = min(lowest, close)
    if not tried:
        return Proof(dim, False, None, (), "because the model takes no size between them")
    found = Proof(
        dim, True, lowest, tuple(tried), "", crops, len(trial.samples), trial.left_out - left_before
    )
    if lowest < EQUAL_DB:
        return _exact_only(found, lowest, f"because filling up changes results ({_db(lowest)})")
    return found


def prove_together(proofs: Sequence[Proof], trial: Trial) -> tuple[Proof, ...]:
    """The same proofs, if they also hold for every bucket with all of its dims filled up at once.

    An output's axis may have a size that follows from two dims, which no dim alone shows.
    """
    dims = [proof.dim for proof in proofs if proof.padded]
    varied = [proof.dim for proof in proofs]
    crops = tuple(crop for proof in proofs if proof.padded for crop in proof.crops)
    if len(varied) < 2 or not dims:
        return tuple(proofs)
    left_before = trial.left_out
    for bucket in trial.buckets:
        own = {dim: bucket.dims[dim] for dim in varied}
        sizes = {dim: (max(1, own[dim] - max(1, own[dim] // 4)), own[dim]) for dim in dims}
        close = trial.closeness(own, sizes, crops)
        if close is not None and close < EQUAL_DB:
            reason = f"because filling up in bucket {bucket.name} changes results ({_db(close)})"
            return tuple(_exact_only(p, close, reason) if p.padded else p for p in proofs)
    left = trial.left_out - left_before
    return tuple(replace(p, left_out=p.left_out + left) if p.padded else p for p in proofs)


def _exact_only(proof: Proof, lowest: float, reason: str) -> Proof:
    return replace(proof, padded=False, lowest_db=lowest, reason=reason, crops=())


def _closeness(right: Outputs, got: Outputs) -> float:
    from hexport.observe.comparing import compare

    compared = compare([right], [got])
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
