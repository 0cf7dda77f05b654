"""Whether a bucket may serve smaller sizes: the original model is asked, at the true size and filled up.

sample ─► original at its size ──────────────────────────► y      ⎫
   └─► filled up ─► original at the bucket's size ─► cut ─► y′    ⎭ compared

A mask that is 0 where nothing is makes the two equal; a convolution, a mean or a softmax over the whole
length does not. Nothing is assumed: where they differ, the dim serves its own sizes only, and it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
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
    from hexport.backend.sample_files import Sample
    from hexport.observe.comparing import Outputs

EQUAL_DB = 40.0
"""What filling up may change: less than the NPU's own rounding mostly does."""
_RULE_SIZES = 9
"""Sizes one below the other that tell how outputs follow from inputs: a stride is found within so many."""

Run = Callable[["Sequence[Sample]"], "Sequence[Outputs | None]"]
"""The original on the CPU; None for a sample whose size it refuses."""


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
        return f"{self.dim}: only the exact sizes run on the NPU, {self.reason}; other sizes run on the CPU"


def prove(
    dim: str,
    places: Places,
    buckets: Sequence[Sizes],
    sample: Sample,
    values: Mapping[str, Number],
    run: Run,
) -> Proof:
    """Try sizes below each bucket along ``dim``. ``sample`` has the largest bucket's shapes."""
    axes = places[dim]
    ends = sorted({bucket.dims[dim] for bucket in buckets})
    try:
        crops = find_crops(dim, _output_shapes(dim, ends[-1], places, sample, run))
    except NoRule as error:
        return Proof(dim, False, None, (), f"because {error}")
    contract = Contract((), (), crops=crops)
    lowest, tried = inf, []
    for end, sizes in _true_sizes(ends):
        for size in sizes:
            true = shortened(sample, places, {dim: size})
            filled = {n: pad(a, _at(a.shape, n, axes, end), _fill(n, axes, values)) for n, a in true.items()}
            right, got = run([true, filled])
            if right is None or got is None:
                continue  # the model itself does not take this size
            tried.append(size)
            lowest = min(lowest, compare([right], [cut(got, contract, {dim: size})]).lowest_db)
    if not tried:
        return Proof(dim, False, None, (), "because the model takes no size between them")
    if lowest < EQUAL_DB:
        reason = f"because filling up changes results ({lowest:.0f} dB)"
        return Proof(dim, False, lowest, tuple(tried), reason)
    return Proof(dim, True, lowest, tuple(tried), "", crops)


def _true_sizes(ends: Sequence[int]) -> list[tuple[int, list[int]]]:
    """For each bucket: just above the one before, in the middle, just below it."""
    found = []
    for before, end in zip((0, *ends), ends, strict=False):
        sizes = {before + 1, (before + end) // 2, end - 1}
        found.append((end, sorted(size for size in sizes if before < size < end)))
    return found


def _output_shapes(
    dim: str, largest: int, places: Places, sample: Sample, run: Run
) -> dict[int, dict[str, tuple[int, ...]]]:
    near = range(max(1, largest - _RULE_SIZES + 1), largest + 1)
    wanted = sorted({1, largest // 4, largest // 2, largest // 2 + 1, *near} - {0})
    results = run([shortened(sample, places, {dim: size}) for size in wanted])
    seen = {
        size: {name: array.shape for name, array in outputs.items()}
        for size, outputs in zip(wanted, results, strict=True)
        if outputs is not None
    }
    if len(seen) < 2:
        raise NoRule("the model takes no other size")
    return seen


def _at(shape: tuple[int, ...], name: str, axes: Sequence[tuple[str, int]], size: int) -> tuple[int, ...]:
    mine = {axis for other, axis in axes if other == name}
    return tuple(size if axis in mine else old for axis, old in enumerate(shape))


def _fill(name: str, axes: Sequence[tuple[str, int]], values: Mapping[str, Number]) -> dict[int, Number]:
    return {axis: values.get(name, 0) for other, axis in axes if other == name}
