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
    shares = _shares(squares, strength, order, damping)
    # [group, input, output]: the numbers of one input lie side by side.
    wanted = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    wanted = np.ascontiguousarray(wanted.transpose(0, 2, 1))
    largest = np.abs(wanted).argmax(axis=1)
    nearest = np.rint(np.take_along_axis(wanted, largest[:, None], axis=1)[:, 0] / scales)
    left, result = wanted.copy(), np.empty(wanted.shape)
    length = wanted.shape[1]
    for begin in range(0, length, _BLOCK):
        end = min(begin + _BLOCK, length)
        errors = np.empty((len(wanted), end - begin, wanted.shape[2]))
        for row in range(begin, end):
            whole = np.clip(np.rint(left[:, row] / scales), -highest, highest)
            if keep_largest:
                whole = np.where(largest == row, nearest, whole)
            result[:, row] = whole
            error = wanted[:, row] - whole * scales
            errors[:, row - begin] = error
            left[:, row + 1 : end] += shares[:, row, row + 1 : end, None] * error[:, None]
        left[:, end:] += shares[:, begin:end, end:].transpose(0, 2, 1) @ errors
    back = np.argsort(order, axis=1, kind="stable")
    return np.take_along_axis(result.transpose(0, 2, 1), back[:, None, :], axis=2)


def _shares(
    squares: NDArray[Any], strength: NDArray[Any], order: NDArray[Any], damping: float
) -> NDArray[Any]:
    """How much of the error of an input, [group, input, later input], each later one takes on.

    With H, the damped second moments in the order of work, as U D Uᵀ with ones on U's diagonal, the squared
    error is the sum of D·(errors·U)²: an input that takes on U's share of every earlier error leaves nothing
    but its own rounding (Chee et al., 2023). No inverse of H is needed, which would take eight times as long.
    """
    rows = np.take_along_axis(squares, order[:, :, None], axis=1)
    sorted_ = np.take_along_axis(rows, order[:, None, :], axis=2)
    usual = strength.mean(axis=1)
    added = damping * np.maximum(usual, max(_FAINT * float(usual.mean()), 1e-12))
    sorted_ += added[:, None, None] * np.eye(squares.shape[1])
    # Cholesky's factor is lower, with the last input first it is upper.
    upper = np.linalg.cholesky(sorted_[:, ::-1, ::-1])[:, ::-1, ::-1]
    found: NDArray[Any] = upper / np.einsum("gii->gi", upper)[:, None, :]
    return found
