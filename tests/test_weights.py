"""Weights as integers: which axis has a scale of its own, and how small a scale may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.facts.integer_ops import integer_rules
from hexport.quantization.encoding import QType
from hexport.quantization.plan import SCHEMES, Precision
from hexport.quantization.weights import Layer, bias_integers, layers_of, nearest, weight_encoding
from quantised_graphs import normal

EIGHT = SCHEMES["16a8w"]


def layer(
    op: str, weight: np.ndarray, bias: np.ndarray | None = None, dtype: type = np.float32, **attributes: Any
) -> Layer:
    """The one layer of a model with this node."""
    inputs = ["x", "w"] + (["b"] if bias is not None else [])
    constants = [small.constant("w", weight.astype(dtype))]
    if bias is not None:
        constants.append(small.constant("b", bias.astype(np.float32)))
    node = helper.make_node(op, inputs, ["y"], name="layer", **attributes)
    proto = small.model([node], [small.value("x", None)], [small.value("y", None)], constants)
    (found,) = layers_of(ir.from_proto(proto)).values()
    return found


CHANNELS = {
    "Conv": (layer("Conv", normal(4, 3, 2, 2)), 0),
    "Conv1D": (layer("Conv", normal(4, 3, 2)), 0),
    "grouped Conv": (layer("Conv", normal(6, 1, 3, 3), group=6), 0),
    "ConvTranspose": (layer("ConvTranspose", normal(3, 4, 2, 2)), 1),
    "grouped ConvTranspose": (layer("ConvTranspose", normal(4, 3, 2, 2), group=2), None),
    "Gemm": (layer("Gemm", normal(5, 4)), 1),
    "Gemm transB": (layer("Gemm", normal(4, 5), transB=1), 0),
    "MatMul": (layer("MatMul", normal(5, 4)), 1),
}


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("type_", [QType.S8, QType.S4])
def test_the_scale_of_each_channel_is_its_largest_weight(name: str, type_: QType) -> None:
    found, axis = CHANNELS[name]
    encoding = weight_encoding(found, Precision(QType.U16, type_), 0.01)
    assert encoding.axis == axis
    others = tuple(i for i in range(found.weight.ndim) if i != axis)
    np.testing.assert_allclose(encoding.scale, np.abs(found.weight).max(axis=others) / type_.high, rtol=1e-6)
    rounded = nearest(found, encoding)
    assert np.abs(rounded.integers).max() == type_.high
    steps = (
        encoding.scale
        if axis is None
        else encoding.scale.reshape(
            np.moveaxis(found.weight, axis, 0).shape[:1] + (1,) * (found.weight.ndim - 1)
        )
    )
    error = rounded.weight - found.weight
    moved = error if axis is None else np.moveaxis(error, axis, 0)
    assert np.all(np.abs(moved) <= steps / 2 * 1.001)


@pytest.mark.parametrize("name", CHANNELS)
def test_16_bit_weights_have_one_scale(name: str) -> None:
    found, _ = CHANNELS[name]
    encoding = weight_encoding(found, SCHEMES["16a16w"], 0.01)
    assert encoding.axis is None
    assert encoding.scale == np.float32(np.abs(found.weight).max() / QType.S16.high)


def test_channels_of_zeros() -> None:
    weight = normal(4, 3, 1, 1)
    weight[1] = 0
    rounded = nearest(found := layer("Conv", weight), weight_encoding(found, EIGHT, 0.01))
    assert not rounded.integers[1].any()
    nothing = layer("Conv", np.zeros((4, 3, 1, 1)), np.ones(4))
    encoding = weight_encoding(nothing, EIGHT, 0.01)
    integers, way_back = bias_integers(np.ones(4, np.float32), encoding, 0.01)
    np.testing.assert_allclose(way_back.reals(integers), 1.0, rtol=1e-6)


@pytest.mark.parametrize("precision", [EIGHT, SCHEMES["16a16w"], SCHEMES["8a8w"], SCHEMES["16a4w"]])
def test_a_bias_has_room_in_its_32_bits(precision: Precision) -> None:
    """Tiny weights beside a bias that matters: the scale grows until the bias fits."""
    bias = np.array([1000.0, -2000.0, 0.5, 0.0])
    found = layer("Conv", normal(4, 3, 1, 1, scale=1e-9), bias)
    encoding = weight_encoding(found, precision, 1e-4)
    integers, way_back = bias_integers(bias.astype(np.float32), encoding, 1e-4)
    room = integer_rules()["bias-room"].value
    assert room is not None
    assert np.abs(integers).max() <= room * 1.001
    np.testing.assert_allclose(way_back.reals(integers), bias, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(way_back.scale, np.float32(1e-4) * encoding.scale, rtol=1e-7)


def test_a_bias_of_one_number_serves_every_channel() -> None:
    found = layer("Gemm", normal(5, 4), np.array([2.5]))
    integers, way_back = bias_integers(np.array([2.5], np.float32), weight_encoding(found, EIGHT, 0.01), 0.01)
    np.testing.assert_allclose(way_back.reals(integers), np.full(4, 2.5), rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "taken"), [((4,), 4), ((1, 4), 4), ((1,), 1), ((), 1), ((3, 4), 0), ((3, 1), 0)]
)
def test_only_a_bias_by_channel_is_one(shape: tuple[int, ...], taken: int) -> None:
    """A Gemm adds any matrix that broadcasts; the HTP adds one number a channel."""
    found = layer("Gemm", normal(5, 4), np.ones(shape))
    assert (0 if found.bias is None else found.bias.size) == taken


@pytest.mark.parametrize("scale", [1e-6, 1e-9])
def test_no_multiplier_is_below_the_least_that_the_htp_computes(scale: float) -> None:
    weight = normal(4, 3, 1, 1)
    weight[2] *= scale
    least = integer_rules()["least-multiplier"].value
    assert least is not None
    found = layer("Conv", weight)
    encoding = weight_encoding(found, EIGHT, 1e-4, output_scale=1.0)
    assert np.all(1e-4 * encoding.scale / 1.0 >= least * 0.999)
    assert encoding.scale[0] == np.float32(np.abs(weight[0]).max() / 127)


@pytest.mark.parametrize("name", [n for n in CHANNELS if "Transpose" not in n])
def test_blocks_run_along_what_is_summed(name: str) -> None:
    found, axis = CHANNELS[name]
    encoding = weight_encoding(found, Precision(QType.U16, QType.S4, 2), 0.01)
    rows = found.place.rows
    assert rows != axis
    assert (encoding.axis, encoding.block) == (rows, 2)
    length = found.weight.shape[rows]
    assert encoding.scale.shape[rows] == -(-length // 2)
    for number in range(encoding.scale.shape[rows]):
        part = np.take(found.weight, range(2 * number, min(2 * number + 2, length)), rows)
        np.testing.assert_allclose(
            np.take(encoding.scale, number, rows), np.abs(part).max(axis=rows) / 7, rtol=1e-6
        )


def test_what_has_no_constant_float_weights_is_no_layer() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"], name="both"),
        helper.make_node("MatMul", ["a", "batch"], ["b"], name="batched"),
        helper.make_node("MatMul", ["half", "w16"], ["c"], name="half"),
    ]
    constants = [
        small.constant("batch", normal(2, 4, 4)),
        small.constant("w16", normal(4, 4).astype(np.float16)),
    ]
    inputs = [small.value("x", [4, 4]), small.value("half", [4, 4], 10)]
    proto = small.model(nodes, inputs, [small.value("b", None), small.value("c", None, 10)], constants)
    assert not layers_of(ir.from_proto(proto))
