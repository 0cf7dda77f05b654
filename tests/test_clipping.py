"""From histograms to ranges: what each method cuts, and what it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from hexport.quantization.clipping import METHODS, expected_error
from hexport.quantization.encoding import QType, asymmetric
from hexport.quantization.histogram import Histogram

numbers = st.floats(-1e6, 1e6, width=32)
tensors = arrays.arrays(np.float32, st.integers(1, 60), elements=numbers)
types = st.sampled_from([QType.U8, QType.U16])


def of(values: NDArray[Any]) -> Histogram:
    histogram = Histogram()
    histogram.add(values)
    return histogram


def true_error(values: NDArray[Any], ends: tuple[float, float], type_: QType) -> float:
    """Measured on the numbers themselves."""
    encoding = asymmetric(*ends, type_)
    return float(np.mean((encoding.reals(encoding.integers(values)).astype(np.float64) - values) ** 2))


def with_outliers() -> NDArray[Any]:
    """A hundred thousand numbers about 0, and one of 30."""
    values = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    values[0] = 30.0
    return values


@settings(max_examples=50)
@given(tensors, types)
def test_least_squares_is_never_worse_than_everything(values: NDArray[Any], type_: QType) -> None:
    histogram = of(values)
    everything = min(histogram.low, 0.0), max(histogram.high, 0.0)
    found = METHODS["mse"](histogram, type_)
    assert expected_error(histogram, *found, type_) <= expected_error(histogram, *everything, type_)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=30)
@given(values=tensors, type_=types)
def test_a_range_lies_within_what_was_seen(method: str, values: NDArray[Any], type_: QType) -> None:
    low, high = METHODS[method](of(values), type_)
    assert min(float(values.min()), 0.0) <= low <= high <= max(float(values.max()), 0.0)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=30)
@given(values=tensors, type_=types)
def test_a_one_sided_range_stays_one_sided(method: str, values: NDArray[Any], type_: QType) -> None:
    # Below the least scale there is no telling.
    values = np.append(values, np.float32(1e-3))
    low, high = METHODS[method](of(np.abs(values)), type_)
    assert asymmetric(low, high, type_).zero_point == type_.low
    low, high = METHODS[method](of(-np.abs(values)), type_)
    assert asymmetric(low, high, type_).high <= 0


def test_min_max_takes_everything() -> None:
    values = with_outliers()
    assert METHODS["min-max"](of(values), QType.U8) == (float(values.min()), float(values.max()))


def test_outliers_are_cut_at_8_bits_and_kept_at_16() -> None:
    values = with_outliers()
    histogram = of(values)
    eight, sixteen = METHODS["mse"](histogram, QType.U8), METHODS["mse"](histogram, QType.U16)
    assert eight[1] < 28
    assert sixteen[1] == 30
    everything = METHODS["min-max"](histogram, QType.U8)
    assert true_error(values, eight, QType.U8) < true_error(values, everything, QType.U8)


def test_the_expected_error_is_the_true_one() -> None:
    values = np.random.default_rng(1).normal(size=20_000).astype(np.float32)
    histogram = of(values)
    for ends in ((-4.5, 4.5), (-2.0, 3.0), (-1.0, 1.0)):
        expected = expected_error(histogram, *ends, QType.U8)
        assert expected == pytest.approx(true_error(values, ends, QType.U8), rel=0.05)


def test_the_percentile_cuts_the_outermost_ten_thousandth() -> None:
    values = np.linspace(0, 1, 1_000_000, dtype=np.float32)
    histogram = of(values)
    low, high = METHODS["percentile"](histogram, QType.U8)
    assert low == pytest.approx(0.5e-4, abs=histogram.width)
    assert high == pytest.approx(1 - 0.5e-4, abs=histogram.width)


@given(tensors)
@example(np.array([-1.4e-45, 2047], np.float32))  # its bin is one off: half of it is 0
def test_of_few_numbers_the_percentile_cuts_none(values: NDArray[Any]) -> None:
    assert METHODS["percentile"](of(values), QType.U8) == (float(values.min()), float(values.max()))


def test_entropy_cuts_outliers_at_8_bits_and_keeps_an_even_range() -> None:
    low, high = METHODS["entropy"](of(with_outliers()), QType.U8)
    assert high < 28
    even = np.random.default_rng(0).uniform(-1, 1, 100_000).astype(np.float32)
    low, high = METHODS["entropy"](of(even), QType.U8)
    assert low == pytest.approx(-1, abs=0.05)
    assert high == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("type_", [QType.U8, QType.U16, QType.S8])
@pytest.mark.parametrize("value", [0.0, 7.0, -7.0])
def test_a_constant_tensor_is_exact(method: str, type_: QType, value: float) -> None:
    values = np.full(100, value, np.float32)
    ends = METHODS[method](of(values), type_)
    assert true_error(values, ends, type_) <= (abs(value) / type_.steps) ** 2


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_of_which_nothing_was_seen(method: str) -> None:
    """A model may give NaN throughout, or an empty tensor: nothing to encode, and no reason to fail."""
    histogram = of(np.full(3, np.nan, np.float32))
    assert METHODS[method](histogram, QType.U8) == (0.0, 0.0)
