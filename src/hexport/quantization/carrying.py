"""Rounding that carries its errors on: numpy alone, for weights and the moments of their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FAINT = 0.1
"""Of the mean over all groups, at least: a channel that was hardly active tells nothing of what wakes it."""
_BLOCK = 64


def carried(
    weights: NDArray[Any],
    scales: NDArray[Any],
    squares: NDArray[Any],
    damping: float,
    highest: int,
    *,
    keep_largest: bool = False,
) -> NDArray[Any]:
    """Whole numbers for ``weights``, [group, output, input], from -highest to highest.

    ``squares`` are the second moments of the vectors that they multiply, summed or on the average, and
    ``damping`` is how much of their mean is added to each (damping.py).
    Each input's weights are rounded after the other, and those to come make up for it (Frantar et al., 2022);
    the inputs that matter most come first. ``keep_largest``: the largest of an output stays the nearest whole
    number, for whoever finds the scale by it.
    """
    strength = np.einsum("gii->gi", squares)
    order = np.argsort(-strength, axis=1, kind="stable")
    inverse = _inverse_root(squares, strength, order, damping)
    left = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    largest = np.abs(left).argmax(axis=2)
    nearest = np.rint(np.take_along_axis(left, largest[:, :, None], axis=2)[:, :, 0] / scales)
    result = np.empty(left.shape)
    length = left.shape[2]
    for begin in range(0, length, _BLOCK):
        end = min(begin + _BLOCK, length)
        errors = np.empty((*left.shape[:2], end - begin))
        for column in range(begin, end):
            whole = np.clip(np.rint(left[:, :, column] / scales), -highest, highest)
            if keep_largest:
                whole = np.where(largest == column, nearest, whole)
            result[:, :, column] = whole
            error = (left[:, :, column] - whole * scales) / inverse[:, column, column][:, None]
            errors[:, :, column - begin] = error
            left[:, :, column:end] -= error[:, :, None] * inverse[:, column, None, column:end]
        left[:, :, end:] -= errors @ inverse[:, begin:end, end:]
    back = np.argsort(order, axis=1, kind="stable")
    return np.take_along_axis(result, back[:, None, :], axis=2)


def _inverse_root(
    squares: NDArray[Any], strength: NDArray[Any], order: NDArray[Any], damping: float
) -> NDArray[Any]:
    """The upper triangular root of the inverse of the damped second moments, in the order of work."""
    rows = np.take_along_axis(squares, order[:, :, None], axis=1)
    sorted_ = np.take_along_axis(rows, order[:, None, :], axis=2)
    usual = strength.mean(axis=1)
    added = damping * np.maximum(usual, max(_FAINT * float(usual.mean()), 1e-12))
    sorted_ += added[:, None, None] * np.eye(squares.shape[1])
    return np.linalg.cholesky(np.linalg.inv(sorted_)).transpose(0, 2, 1)
