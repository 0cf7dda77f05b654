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


def agreement(old: np.ndarray, new: np.ndarray) -> tuple[str, float] | None:
    found = compare([{"y": old}], [{"y": new}]).agreement
    return (found.by, found.share) if found else None


def test_probabilities_apart_are_judged_by_a_threshold() -> None:
    old = np.array([[0.1, 0.9, 0.6, 0.2]])
    assert agreement(old, np.array([[0.2, 0.7, 0.4, 0.49]])) == ("threshold", 0.75)
    assert agreement(old, np.array([[np.nan, 0.7, 0.6, 0.2]])) == ("threshold", 0.75)
    assert agreement(old[:, :2], old[:, :2]) == ("threshold", 1.0)


def test_one_choice_is_judged_by_its_largest_entry() -> None:
    old = np.array([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3]])
    new = np.array([[0.2, 0.4, 0.4001], [0.5, 0.2, 0.3]])
    assert agreement(old, new) == ("argmax", 0.5)
    assert agreement(10 * old, 10 * new) == ("argmax", 0.5)


@pytest.mark.parametrize("old", [np.array([1.5, -2.0]), np.array([1, 0]), np.array(3.0), np.zeros((0, 4))])
def test_outputs_that_decide_nothing(old: np.ndarray) -> None:
    assert agreement(old, old) is None


def test_the_output_that_agrees_least_counts() -> None:
    sure, torn = np.array([0.1, 0.9]), np.array([0.4, 0.4])
    result = compare(
        [{"a": sure, "b": sure, "c": np.array([7.0])}], [{"a": sure, "b": torn, "c": np.zeros(1)}]
    )
    assert result.agreement is not None
    assert result.agreement.share == 0.5
    assert str(result.agreement) == "50.0 % (threshold)"


def test_noise_in_an_almost_silent_sample_is_measured_against_the_usual_signal() -> None:
    loud, silent = np.ones(100), np.full(100, 1e-4)
    expected = [{"y": loud}, {"y": loud}, {"y": silent}]
    got = [{"y": loud * 1.001}, {"y": loud * 1.001}, {"y": silent + 1e-3}]
    (output,) = compare(expected, got).outputs
    # By itself -20 dB; against a hundredth of the usual power (20 dB below 1) noise of 1e-3 is at 40.
    assert output.lowest_db == pytest.approx(40)
    assert output.quiet == 1
    assert "almost silent in 1 of" in output.remark
    # What is loud in it is held against it as before.
    (output,) = compare(expected, [*got[:2], {"y": silent + 0.5}]).outputs
    assert output.lowest_db == pytest.approx(-20 + 20 * math.log10(2))


def test_what_random_inputs_leave_faint_is_measured_against_what_fp16_can_hold() -> None:
    expected, got = [{"y": np.full(100, 2e-6)}], [{"y": np.zeros(100)}]
    (real,) = compare(expected, got).outputs
    assert (real.sqnr_db, real.remark) == (0, "")
    (faint,) = compare(expected, got, real=False).outputs
    assert faint.sqnr_db == faint.lowest_db == pytest.approx(20 * math.log10(10 * 2.0**-14 / 2e-6))
    assert "y is fainter on random inputs than fp16 can hold" in faint.remark
    # What is wrong by more than that is as wrong as ever, and what is not faint is not touched.
    (wrong,) = compare(expected, [{"y": np.full(100, 0.5)}], real=False).outputs
    assert wrong.sqnr_db < -50
    (loud,) = compare([{"y": np.ones(9)}], [{"y": np.full(9, 1.1)}], real=False).outputs
    assert loud.sqnr_db == pytest.approx(20)
    assert not loud.remark


def test_a_sample_that_is_only_lower_counts_by_itself() -> None:
    expected = [{"y": np.ones(4)}, {"y": np.ones(4)}, {"y": np.full(4, 0.2)}]
    (output,) = compare(expected, [*expected[:2], {"y": np.full(4, 0.22)}]).outputs
    assert output.lowest_db == pytest.approx(20)
    assert not output.quiet
    assert not output.remark


def test_integers_are_never_silent() -> None:
    expected = [{"y": np.full(4, 500)}, {"y": np.full(4, 500)}, {"y": np.zeros(4, int)}]
    (output,) = compare(expected, [*expected[:2], {"y": np.full(4, 3)}]).outputs
    assert output.lowest_db == -math.inf
