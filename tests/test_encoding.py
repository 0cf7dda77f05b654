"""Encodings: what an integer stands for is never further off than half a step, and 0 is 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from hexport.quantization.encoding import Encoding, QType, asymmetric, symmetric

ACTIVATIONS = [QType.U8, QType.U16, QType.S8]
WEIGHTS = [QType.S8, QType.S16, QType.S4, QType.U8]
LARGE = 2.0**100
"""Products of it and the steps of any type are still numbers in float32."""
numbers = st.floats(-LARGE, LARGE, width=32)
tensors = arrays.arrays(np.float32, st.integers(1, 40), elements=numbers)


def half_steps(encoding: Encoding, values: NDArray[Any]) -> NDArray[Any]:
    """How many halves of a step each value is off once it was an integer."""
    scale = encoding._spread(values).astype(np.float64)
    error = np.abs(encoding.reals(encoding.integers(values)).astype(np.float64) - values)
    # float32 itself rounds the result to a relative 2⁻²⁴.
    result: NDArray[Any] = (error - 2.0**-23 * np.abs(values)) / (scale / 2)
    return result


@given(values=tensors, type_=st.sampled_from(ACTIVATIONS))
def test_within_the_range_it_is_off_by_half_a_step_at_most(values: NDArray[Any], type_: QType) -> None:
    encoding = asymmetric(float(values.min()), float(values.max()), type_)
    assert half_steps(encoding, values).max() <= 1.001
    # Where 0 lies is rounded to a whole step as well, so the two ends may lose half of one.
    slack = 0.501 * float(encoding.scale)
    assert encoding.low - slack <= min(float(values.min()), 0.0)
    assert encoding.high + slack >= max(float(values.max()), 0.0) * (1 - 1e-6)


@given(values=tensors, type_=st.sampled_from([*ACTIVATIONS, *WEIGHTS]))
def test_zero_is_exact(values: NDArray[Any], type_: QType) -> None:
    zero = np.zeros(1, np.float32)
    for encoding in (
        asymmetric(float(values.min()), float(values.max()), type_),
        symmetric(float(np.abs(values).max()), type_),
    ):
        assert encoding.reals(encoding.integers(zero)) == 0
        assert type_.low <= encoding.zero_point <= type_.high


@given(values=tensors, type_=st.sampled_from(WEIGHTS))
def test_a_symmetric_encoding_never_uses_the_least_integer(values: NDArray[Any], type_: QType) -> None:
    encoding = symmetric(float(np.abs(values).max()), type_)
    integers = encoding.integers(values)
    assert integers.min() > type_.low
    assert integers.max() <= type_.high
    assert half_steps(encoding, values).max() <= 1.001
    np.testing.assert_array_equal(
        encoding.integers(-values) - encoding.zero_point, -(integers - encoding.zero_point)
    )


@given(
    values=arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=4, max_side=5), elements=numbers
    ),
    data=st.data(),
)
def test_each_slice_has_its_own_scale(values: NDArray[Any], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, values.ndim - 1))
    type_ = data.draw(st.sampled_from(WEIGHTS))
    others = tuple(i for i in range(values.ndim) if i != axis)
    encoding = symmetric(np.abs(values).max(axis=others), type_, axis)
    integers = encoding.integers(values)
    for index in range(values.shape[axis]):
        part = np.take(values, index, axis)
        alone = symmetric(float(np.abs(part).max()), type_)
        np.testing.assert_array_equal(np.take(integers, index, axis), alone.integers(part))
    np.testing.assert_array_less(half_steps(encoding, values), 1.001)


@given(
    values=arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=3, max_side=9), elements=numbers
    ),
    block=st.integers(1, 6),
    data=st.data(),
)
def test_each_block_has_its_own_scale(values: NDArray[Any], block: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, values.ndim - 1))
    moved = np.moveaxis(values, axis, 0)
    runs = [moved[begin : begin + block] for begin in range(0, len(moved), block)]
    largest = np.moveaxis(np.stack([np.abs(run).max(axis=0) for run in runs]), 0, axis)
    encoding = Encoding(QType.S4, symmetric(largest, QType.S4).scale, 0, axis, block)
    integers = np.moveaxis(encoding.integers(values), axis, 0)
    for number, run in enumerate(runs):
        alone = Encoding(QType.S4, symmetric(np.abs(run).max(axis=0), QType.S4).scale)
        np.testing.assert_array_equal(integers[number * block :][: len(run)], alone.integers(run))


@pytest.mark.parametrize("type_", ACTIVATIONS)
@pytest.mark.parametrize("value", [0.0, 1e-30, -1e-30, 5.0, -5.0, 1e38, -1e38])
def test_a_constant_tensor(type_: QType, value: float) -> None:
    values = np.full(3, value, np.float32)
    encoding = asymmetric(value, value, type_)
    assert np.isfinite(encoding.scale)
    assert encoding.scale > 0
    np.testing.assert_allclose(encoding.reals(encoding.integers(values)), values, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("type_", WEIGHTS)
def test_a_tensor_of_zeros(type_: QType) -> None:
    encoding = symmetric(np.zeros(4), type_, axis=0)
    zeros = np.zeros((4, 2), np.float32)
    np.testing.assert_array_equal(encoding.reals(encoding.integers(zeros)), zeros)


@given(low=numbers, high=numbers, type_=st.sampled_from([QType.U8, QType.U16]))
def test_an_encoding_written_down_by_its_ends_is_found_again(low: float, high: float, type_: QType) -> None:
    """quant.json has the ends, and gives the same encoding when it is read."""
    first = asymmetric(min(low, high), max(low, high), type_)
    again = asymmetric(first.low, first.high, type_)
    assert again.zero_point == first.zero_point
    assert again.scale == first.scale


def test_the_steps_of_a_bias_are_not_rounded_by_float32() -> None:
    """2²⁴ + 1 has no float32; the quotient of two that have must still be that integer."""
    encoding = Encoding(QType.S32, np.array(0.1, np.float32))
    wanted = 2**29 + np.arange(-3, 4)
    values = wanted * encoding.scale.astype(np.float64)
    np.testing.assert_array_equal(encoding.integers(values), wanted)


def test_values_outside_are_cut_at_the_ends() -> None:
    encoding = asymmetric(-1.0, 1.0, QType.U8)
    np.testing.assert_array_equal(encoding.integers(np.array([-1e30, 1e30])), [0, 255])


@pytest.mark.parametrize(
    ("type_", "bits"), [(QType.U8, 8), (QType.S8, 8), (QType.U16, 16), (QType.S4, 4), (QType.S32, 32)]
)
def test_bits(type_: QType, bits: int) -> None:
    assert type_.bits == bits
    assert type_.steps == 2**bits - 1
    assert type_.signed == (type_.low < 0)
