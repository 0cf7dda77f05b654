"""Comparing outputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.observe.comparing import compare


def one(old: np.ndarray, new: np.ndarray) -> float:
    return compare([{"y": old}], [{"y": new}]).sqnr_db


def test_equal_is_infinite() -> None:
    assert one(np.arange(4.0), np.arange(4.0)) == math.inf
    assert one(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == math.inf


@given(st.floats(1, 6))
def test_decibels(digits: float) -> None:
    """Noise of a tenth of the signal's amplitude is 20 dB, a hundredth 40 dB."""
    signal = np.full(1000, 3.0)
    noisy = signal * (1 + 10**-digits * np.where(np.arange(1000) % 2, 1, -1))
    assert one(signal, noisy) == pytest.approx(20 * digits, abs=0.01)


@pytest.mark.parametrize(
    "new",
    [
        np.array([1.0, np.nan]),
        np.array([1.0, np.inf]),
        np.zeros(3),
        np.array([1, 2]),
        np.array([1.0, 2.0], np.float32),
    ],
)
def test_what_cannot_be_right(new: np.ndarray) -> None:
    assert one(np.array([1.0, 2.0]), new) == -math.inf


def test_infinities_of_the_reference_are_not_held_against_anyone() -> None:
    assert one(np.array([-np.inf, 2.0]), np.array([-6e4, 2.0])) == math.inf


def test_the_worst_output_counts_and_the_median_sample() -> None:
    good, bad = np.array([1.0, 0.0]), np.array([1.0, 0.1])
    result = compare([{"a": good, "b": good}] * 3, [{"a": good, "b": b} for b in (good, bad, bad)])
    assert result.worst is not None
    assert result.worst.name == "b"
    assert result.sqnr_db == pytest.approx(20)
    assert result.worst.worst_error == pytest.approx(0.1)


def test_what_the_task_would_decide() -> None:
    old = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    new = np.array([[1.0, 2.0, 3.1], [2.0, 2.5, 1.0]])
    (output,) = compare([{"y": old}], [{"y": new}]).outputs
    assert output.same_argmax == 0.5
    (pair,) = compare([{"y": old[:, :2]}], [{"y": new[:, :2]}]).outputs
    assert pair.same_argmax is None


def test_a_missing_output() -> None:
    (output,) = compare([{"y": np.zeros(1)}], [{}]).outputs
    assert output.note == "the output is missing"
