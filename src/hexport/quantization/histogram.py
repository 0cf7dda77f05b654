"""What a tensor held over all samples: a histogram that grows with its range, in constant memory."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor, log2
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 2048
_MOST, _LEAST = 16384, 1024
"""Numbers of one array that are counted: of more, so many at random, and all that lie beyond those."""
_HALVED_AFTER = 32
"""So many arrays tell what a tensor is like; of later ones half as many numbers are counted, and so on."""
_SINGLY = 256
"""So few are put into their bins one by one, faster than all bins are gone through."""
_FEW = 64
"""Numbers of one array, of which the largest is chance."""
_EXTREMES = 4
"""Arrays whose ends are kept: those that reach furthest."""


class Histogram:
    """Counts over bins of a width that is a power of two and doubles when a wider range is met."""

    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self.width = 0.0
        self.first = 0
        """The number of the first bin: it begins at ``first · width``."""
        self.infinite = False
        """Whether an infinity or NaN was met; no integer stands for those."""
        self.counts: NDArray[Any] = np.zeros(BINS, np.int16)
        """Of as many bits as they need: a recurrence written out has thousands of tensors."""
        self.total = 0
        """Of all counts."""
        self.arrays = 0
        self.lows: list[float] = []
        """Where the lowest few arrays end, as long as arrays have few numbers; so too with the highest."""
        self.highs: list[float] = []

    @property
    def has_few(self) -> bool:
        """Whether it is of so few numbers an array that others may well go beyond them, and of arrays enough
        to tell how far."""
        return len(self.highs) == _EXTREMES and self.total <= _FEW * self.arrays

    def add(self, values: NDArray[Any]) -> None:
        """Count the finite ones among ``values``."""
        flat = np.asarray(values, np.float32).reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            self.infinite = True
            flat = flat[np.isfinite(flat)]
            if not flat.size:
                return
            low, high = float(flat.min()), float(flat.max())
        self._widen(min(low, self.low), max(high, self.high))
        self.low, self.high = min(low, self.low), max(high, self.high)
        most = max(_MOST >> self.arrays // _HALVED_AFTER, _LEAST)
        self.arrays += 1
        if flat.size <= _FEW:
            self.lows = sorted([*self.lows, low])[:_EXTREMES]
            self.highs = sorted([*self.highs, high])[-_EXTREMES:]
        if flat.size <= most:
            self._count(flat, 1)
            return
        body = flat[_some_of(flat.size, most)]
        self._count(body, flat.size // most)
        # Outliers are few, and what cutting them off costs is theirs alone: none may be missed.
        least, largest = body.min(), body.max()
        if low < least and high > largest:
            self._count(flat[(flat < least) | (flat > largest)], 1)
        elif low < least:
            self._count(flat[flat < least], 1)
        elif high > largest:
            self._count(flat[flat > largest], 1)

    def _count(self, flat: NDArray[Any], times: int) -> None:
        places = np.floor(flat * np.float32(1 / self.width)).astype(np.int64)
        places -= self.first
        # Rounding of the product may put the very last number one bin too far. (np.clip would take longer
        # than all the rest.)
        np.maximum(places, 0, out=places)
        np.minimum(places, BINS - 1, out=places)
        self._make_room(times * flat.size)
        if flat.size < _SINGLY:
            np.add.at(self.counts, places, self.counts.dtype.type(times))
            return
        more = np.bincount(places, minlength=BINS)
        np.add(self.counts, more if times == 1 else times * more, out=self.counts, casting="same_kind")

    def fill(self, places: NDArray[Any], counts: NDArray[Any]) -> None:
        """Put back what was kept of one like this."""
        self._make_room(int(counts.sum(dtype=np.int64)))
        self.counts[places] = counts

    def _make_room(self, more: int) -> None:
        """For a total that is so much larger, all of which may be in one bin."""
        self.total += more
        if self.total >> (8 * self.counts.itemsize - 1):
            self.counts = self.counts.astype(np.min_scalar_type(-self.total - 1))

    @property
    def centres(self) -> NDArray[Any]:
        return (self.first + np.arange(BINS) + 0.5) * self.width

    @property
    def edges(self) -> NDArray[Any]:
        """Where bins begin, and where the last one ends."""
        return (self.first + np.arange(BINS + 1)) * self.width

    def _widen(self, low: float, high: float) -> None:
        if self.width == 0.0:
            span = max(high - low, abs(high) * 1e-6, 1e-30)
            self.width = 2.0 ** ceil(log2(span / BINS))
            self.first = floor(low / self.width)
        while floor(low / self.width) < self.first or floor(high / self.width) >= self.first + BINS:
            self._shift_or_double(low, high)

    def _shift_or_double(self, low: float, high: float) -> None:
        begin = min(floor(low / self.width), self.first)
        filled = np.flatnonzero(self.counts)
        last = self.first + (int(filled[-1]) if filled.size else 0)
        if filled.size:
            begin = min(floor(low / self.width), self.first + int(filled[0]))
        end = max(floor(high / self.width), last)
        if end - begin < BINS:
            moved = np.zeros_like(self.counts)
            if filled.size:
                moved[filled + (self.first - begin)] = self.counts[filled]
            self.counts, self.first = moved, begin
            return
        pairs = (self.first + np.arange(BINS)) // 2
        self.first, self.width = self.first // 2, self.width * 2
        merged = np.zeros_like(self.counts)
        np.add.at(merged, pairs - self.first, self.counts)
        self.counts = merged


@lru_cache(maxsize=256)
def _some_of(size: int, most: int) -> NDArray[np.int64]:
    """Places in an array of this size, the same every time."""
    # Python's own generator: numpy's takes 3 MB when it is first used, and this may be its only use.
    drawn = np.frombuffer(Random(size).randbytes(8 * most), "<u8")
    return (drawn % np.uint64(size)).astype(np.int64)
