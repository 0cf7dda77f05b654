"""From a histogram to the range that is encoded: all of it, or less where rounding finer gains more.

Clipping loses what is outside; a wider range rounds more coarsely what is inside. Each method weighs the
two in its own way; the default takes the least expected squared error for the number of bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.quantization.encoding import QType
from hexport.quantization.histogram import Histogram

Range = tuple[float, float]
Ends = float | NDArray[Any]
ErrorOf = Callable[[Ends, Ends], NDArray[Any]]
_PERCENTILE = 99.99
_SHRINKS = np.concatenate([np.linspace(1.0, 0.5, 26), np.geomspace(0.48, 0.02, 24)])


def min_max(histogram: Histogram, _: QType) -> Range:
    """Everything that was seen."""
    return (histogram.low, histogram.high) if histogram.total else (0.0, 0.0)


def percentile(histogram: Histogram, _: QType) -> Range:
    """All but the outermost ten-thousandth, on each side the half of it."""
    if not histogram.total:
        return 0.0, 0.0
    share = np.cumsum(histogram.counts) / histogram.total
    outside = (1 - _PERCENTILE / 100) / 2
    first, last = (int(np.searchsorted(share, part)) for part in (outside, 1 - outside))
    counts, edges = histogram.counts, histogram.edges
    # Of few numbers nothing is cut, and what lies outermost is known better than by its bin.
    low = max(float(edges[first]), histogram.low) if counts[:first].any() else histogram.low
    high = min(float(edges[last + 1]), histogram.high) if counts[last + 1 :].any() else histogram.high
    return low, high


def least_squares(histogram: Histogram, type_: QType) -> Range:
    """The range with the least expected squared error."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    error = _squared_error(histogram, type_)
    lows, highs = low * _SHRINKS, high * _SHRINKS
    best = (float(error(low, high)), low, high)
    # Each end on its own, then the other one: the error is nearly convex in both.
    for _round in range(2):
        best = min(best, *_tried(error, lows, best[2]))
        best = min(best, *_tried(error, best[1], highs))
    return best[1], best[2]


def _tried(error: ErrorOf, low: Ends, high: Ends) -> Iterator[tuple[float, float, float]]:
    ranges = np.broadcast_arrays(error(low, high), low, high)
    return zip(*(part.tolist() for part in ranges), strict=True)


def entropy(histogram: Histogram, type_: QType) -> Range:
    """The range whose rounded distribution tells the least from the true one (Kullback-Leibler)."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    found = [(_divergence(histogram, low * s, high * s, type_), low * s, high * s) for s in _SHRINKS[:36]]
    return min(found)[1:]


METHODS: dict[str, Callable[[Histogram, QType], Range]] = {
    "min-max": min_max,
    "percentile": percentile,
    "mse": least_squares,
    "entropy": entropy,
}


def expected_error(histogram: Histogram, low: float, high: float, type_: QType) -> float:
    """The mean squared error of writing what was seen as integers over this range."""
    return float(_squared_error(histogram, type_)(low, high)) / max(histogram.total, 1)


def _squared_error(histogram: Histogram, type_: QType) -> ErrorOf:
    """As a function of the range, or of many, from sums that are made once."""
    used = np.flatnonzero(histogram.counts)
    counts = histogram.counts[used].astype(np.float64)
    # The extremes are known exactly; a bin's centre may lie beyond them.
    centres = np.clip(histogram.centres[used], histogram.low, histogram.high)
    numbers, sums, squares = (
        np.concatenate([[0.0], np.cumsum(counts * centres**power)]) for power in range(3)
    )

    def beyond(end: Ends, begin: NDArray[Any] | int, stop: NDArray[Any] | int) -> NDArray[Any]:
        """What cutting the bins ``begin`` to ``stop`` at ``end`` costs."""
        count, total, square = (part[stop] - part[begin] for part in (numbers, sums, squares))
        cost: NDArray[Any] = np.maximum(square - 2 * end * total + end**2 * count, 0.0)
        return cost

    def error(low: Ends, high: Ends) -> NDArray[Any]:
        step = (high - low) / type_.steps
        first = np.searchsorted(centres, low, side="left")
        last = np.searchsorted(centres, high, side="right")
        inside = numbers[last] - numbers[first]
        total: NDArray[Any] = beyond(low, 0, first) + beyond(high, last, len(used)) + inside * step**2 / 12
        return total

    return error


def _divergence(histogram: Histogram, low: float, high: float, type_: QType) -> float:
    counts, edges = histogram.counts.astype(np.float64), histogram.edges
    below, above = edges[1:] <= low, edges[:-1] > high
    inside = ~below & ~above
    if not inside.any():
        return np.inf
    true = counts[inside].copy()
    true[0] += counts[below].sum()
    true[-1] += counts[above].sum()
    levels = min(type_.steps + 1, len(true))
    cells = (np.arange(len(true)) * levels) // len(true)
    kept: NDArray[Any] = np.bincount(cells, counts[inside], minlength=levels)
    holders = np.bincount(cells, counts[inside] > 0, minlength=levels)
    rounded = np.where(counts[inside] > 0, kept[cells] / np.maximum(holders[cells], 1), 0.0)
    p, q = true / max(true.sum(), 1), rounded / max(rounded.sum(), 1)
    both = (p > 0) & (q > 0)
    missing = p[(p > 0) & (q == 0)].sum()
    return float(np.sum(p[both] * np.log(p[both] / q[both])) + missing * 30)
