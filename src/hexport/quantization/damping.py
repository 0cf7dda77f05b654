"""How far rounding that carries its errors trusts the samples: less, and weights learn them by heart.

Damping is a share of the mean second moment that is added to each. With little of it EfficientNet-Lite0 loses
decibels on photographs it has not seen; with much of it the first layer of a voice model loses five, though
its few hundred vectors tell all there is to tell about sound. So it is tried: rounded by one half of the
samples, a layer is judged on the other. Numpy alone, as in carrying.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.quantization.carrying import carried

Halves = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Second moments of every other sample each: what is fitted to one half is proved on the other."""
_LEAST, _MOST = 0.1, 2.0
_TRIED = (2.0, 0.5, 0.1, 0.02)
"""The most cautious first."""
_WON = 0.97
"""Of the error of who trusts less, which who trusts more must be below: inputs may be unlike the samples."""
_ENOUGH = 4.0
"""Vectors for each input of a sum: neighbours in an image or a text are much the same."""
_ROWS = 64
"""Outputs of a layer that stand for all: they share the moments, which is what damping is about."""
_STEPS = 127
"""In which it is tried, whatever the weights will have: it is about the samples, and must not depend on what
else was tried before."""
_LONGEST = 1024
"""Inputs to one sum; a trial takes seconds where there are more, and there are four to eight."""


def doubt(length: int, count: int) -> float:
    """Of the moments of so many vectors; 0: they hold for all inputs, 1: for none but the samples."""
    return min(_ENOUGH * length / max(count, 1), 1.0)


def assumed_damping(length: int, count: int) -> float:
    """By the number of vectors alone, where there is nothing to prove it on."""
    return _LEAST + _MOST * doubt(length, count)


def proven_damping(weights: NDArray[Any], halves: Halves, count: int) -> float:
    """What rounds ``weights``, [group, output, input], best for samples that the rounding has not seen."""
    length = weights.shape[2]
    if length > _LONGEST or not all(half.any() for half in halves):
        return assumed_damping(length, count)
    every = -(-weights.shape[1] // _ROWS)
    rows = weights[:, ::every].astype(np.float64)
    largest = np.abs(rows).max(axis=2)
    steps = np.where(largest > 0, largest, 1.0) / _STEPS
    one, other = (half.astype(np.float64) for half in halves)

    def unseen_error(damping: float) -> float:
        return sum(
            _error(rows, carried(rows, steps, fitted, damping, _STEPS) * steps[:, :, None], unseen)
            for fitted, unseen in ((one, other), (other, one))
        )

    best = _TRIED[0]
    least = unseen_error(best)
    for damping in _TRIED[1:]:
        error = unseen_error(damping)
        if error >= _WON * least:
            # It falls to one place and rises again: what trusts still more need not be tried.
            break
        best, least = damping, error
    return best


def _error(wanted: NDArray[Any], found: NDArray[Any], squares: NDArray[Any]) -> float:
    """Of what rows give for vectors with these second moments: the sum of its squares."""
    change = found - wanted
    return float(np.sum(np.matmul(change, squares) * change))
