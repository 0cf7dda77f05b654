"""Histograms: every number is counted once, wherever it lies and in whatever order it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from hexport.quantization.histogram import BINS, Histogram

numbers = st.builds(
    lambda whole, power: whole * 2.0**power, st.integers(-(2**20), 2**20), st.integers(-50, 50)
)
"""Of float32, over thirty decades; beyond that a quotient of two is no longer a normal number."""
batches = st.lists(arrays.arrays(np.float32, st.integers(0, 30), elements=numbers), min_size=1, max_size=8)


def of(batches: list[NDArray[Any]]) -> Histogram:
    histogram = Histogram()
    for batch in batches:
        histogram.add(batch)
    return histogram


@given(batches)
def test_every_number_is_counted_and_the_ends_are_exact(batches: list[NDArray[Any]]) -> None:
    histogram = of(batches)
    everything = np.concatenate(batches)
    assert histogram.total == everything.size
    assert histogram.counts.size == BINS
    if everything.size:
        assert histogram.low == everything.min()
        assert histogram.high == everything.max()
        used = np.flatnonzero(histogram.counts)
        assert histogram.edges[used[0]] <= histogram.low < histogram.edges[used[0] + 1]
        assert histogram.edges[used[-1]] <= histogram.high < histogram.edges[used[-1] + 1]


@given(batches)
def test_each_number_is_in_its_own_bin(batches: list[NDArray[Any]]) -> None:
    """A bin that was widened still holds exactly what lies between its edges."""
    histogram = of(batches)
    everything = np.concatenate(batches).astype(np.float64)
    expected, _ = np.histogram(everything, histogram.edges) if everything.size else (histogram.counts, 0)
    np.testing.assert_array_equal(histogram.counts, expected)


@given(batches, st.randoms())
def test_the_order_does_not_matter(batches: list[NDArray[Any]], random: Any) -> None:
    """But for how wide bins became: both tell the same within the wider ones."""
    shuffled = list(batches)
    random.shuffle(shuffled)
    one, other = of(batches), of(shuffled)
    assert (one.total, one.low, one.high) == (other.total, other.low, other.high)
    if one.total:
        width = max(one.width, other.width)
        for histogram in (one, other):
            values = np.sort(np.concatenate(batches).astype(np.float64))
            told = np.repeat(histogram.centres, histogram.counts)
            np.testing.assert_array_less(np.abs(told - values), width)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
def test_it_is_as_fine_as_half_its_bins_over_the_range(spread: float) -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=1000).astype(np.float32) * spread * factor for factor in (0.01, 1.0, 0.1, 2.0)]
    histogram = of(batches)
    assert np.count_nonzero(histogram.edges[1:] > histogram.low) > 0
    span = histogram.high - histogram.low
    # A width that is a power of two, and bins that begin at a multiple of it.
    assert histogram.width <= 2 * span / (BINS - 2)


def test_it_grows_from_nothing_to_everything() -> None:
    histogram = of(
        [np.zeros(3, np.float32), np.array([3e38, -3e38], np.float32), np.full(2, 1e-38, np.float32)]
    )
    assert histogram.total == 7
    assert (histogram.low, histogram.high) == (float(np.float32(-3e38)), float(np.float32(3e38)))


def test_a_tensor_far_from_zero() -> None:
    values = (1e6 + np.arange(100)).astype(np.float32)
    histogram = of([values])
    assert histogram.width <= 2 * 99 / (BINS - 2)
    np.testing.assert_array_equal(np.histogram(values, histogram.edges)[0], histogram.counts)


def test_what_is_no_number_is_not_counted() -> None:
    histogram = of(
        [np.array([np.nan, np.inf, 1.0, -np.inf, 2.0], np.float32), np.full(4, np.nan, np.float32)]
    )
    assert histogram.total == 2
    assert (histogram.low, histogram.high) == (1.0, 2.0)


def test_any_shape_and_type_of_numbers() -> None:
    histogram = of([np.ones((2, 3, 4)), np.full((), 2.0, np.float16), np.zeros((0, 5), np.float32)])
    assert histogram.total == 25


def test_of_large_arrays_the_body_is_sampled_and_no_outlier_missed() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=300_000).astype(np.float32)
    outliers = np.array([-37.5, 60.25, 99.0], np.float32)
    values[[5, 150_000, 299_999]] = outliers
    histogram, again = Histogram(), Histogram()
    for one in (histogram, again):
        one.add(values)
    np.testing.assert_array_equal(histogram.counts, again.counts)
    assert (histogram.low, histogram.high) == (-37.5, 99.0)
    far = np.abs(histogram.centres) > 10
    assert histogram.counts[far].sum() == len(outliers)
    assert histogram.total == pytest.approx(values.size, rel=0.1)
    share = histogram.counts[np.abs(histogram.centres) < 1].sum() / histogram.total
    assert share == pytest.approx(0.683, abs=0.02)


@pytest.mark.parametrize("count", [2**15 - 1, 2**15])
def test_more_than_16_bits_can_count(count: int) -> None:
    histogram = Histogram()
    for _ in range(4):
        histogram.add(np.zeros(count // 4, np.float32))
    histogram.add(np.zeros(count % 4, np.float32))
    assert histogram.counts.max() == histogram.total == count
    assert histogram.counts.min() == 0


def test_more_than_32_bits_can_count() -> None:
    """As a mask over many long samples does, whose zeros are all in one bin."""
    histogram = Histogram()
    large = np.zeros(2**25, np.float32)
    rounds = 2**31 // large.size + 2
    for _ in range(rounds):
        histogram.add(np.broadcast_to(np.float32(0), large.shape))
    assert histogram.counts.max() > 2**31
    assert histogram.counts.min() == 0
