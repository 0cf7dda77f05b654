"""The range of scores: what was seen of them, and what samples to come may hold.

Where a model ends in a handful of numbers a sample, the largest one seen is chance, and a result that is cut
off there is wrong for every input beyond: a model of speech quality, with 46 dB on the samples it was
quantised by, could not say more than 2.77 of 5. Of as many samples as were seen, one in the mean will go
beyond all of them, by about as much as their extremes lie apart. A wider range costs every number a coarser
step; the least sum of both is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from hexport.quantization.encoding import QType
from hexport.quantization.histogram import Histogram
from hexport.quantization.roles import kind_of

_BEYOND = np.linspace(0.0, 3.0, 121)
"""Of the width that was seen, at either end."""


def scores_of(model: ir.Model, histograms: Mapping[str, Histogram]) -> set[str]:
    """Tensors of few numbers, after which no larger one comes, and whose size is felt at the end.

    The few by which a gate scales a whole map are none: each of their steps is felt all over the map, and
    with room PP-OCRv6 detection loses 2 dB. Nor are those that only a Sigmoid or the like reads: the larger
    they are, the less of it is felt, and with room a model of echoes loses 5 dB.
    """
    few: set[str] = set()
    felt: set[str] = set()
    for node in reversed(model.graph):
        for value in node.outputs:
            seen, name = histograms.get(str(value.name)), str(value.name)
            made = {str(later.name): _has_ends(user) for user in value.consumers() for later in user.outputs}
            if seen is not None and seen.has_few and few.issuperset(made):
                few.add(name)
            if value.is_graph_output() or any(later in felt and not ends for later, ends in made.items()):
                felt.add(name)
    return few & felt


def _has_ends(node: ir.Node) -> bool:
    """Whether its result stays between two ends, whatever it reads."""
    known = kind_of(node)
    return known is not None and bool(known.range)


def range_with_unseen(histogram: Histogram, type_: QType) -> tuple[float, float]:
    """The ends with the least squared error to be expected; never less than was seen, and 0."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    lows, highs = low - _BEYOND * (high - low), high + _BEYOND * (high - low)
    share = histogram.arrays / (histogram.arrays + 1)
    below = share * _cut_off(histogram.low - lows, _apart([-one for one in histogram.lows]))
    above = share * _cut_off(highs - histogram.high, _apart(histogram.highs))
    rounded = histogram.total * ((highs - lows[:, None]) / type_.steps) ** 2 / 12
    first, last = divmod(int(np.argmin(rounded + below[:, None] + above)), len(_BEYOND))
    return float(lows[first]), float(highs[last])


def _apart(largest: list[float]) -> float:
    """The mean excess of the outermost over the next one: that of a tail that falls off exponentially."""
    *outer, inner = sorted(largest, reverse=True)
    return float(np.mean(outer)) - inner if outer else 0.0


def _cut_off(beyond: np.ndarray, mean: float) -> np.ndarray:
    """The squared error expected of one number that goes beyond what was seen by so much in the mean."""
    return 2 * mean**2 * np.exp(-beyond / mean) if mean > 0 else np.zeros_like(beyond)
