"""Sums with 16-bit activations come in grains on the HTP; a bias makes up for what is left off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper, numpy_helper

import small_models as small
from hexport import facts
from hexport.backend.running import run_on_cpu, run_on_htp
from hexport.quantization.coarse_sums import CoarseSum, stored_sum
from hexport.quantization.encoding import QType
from hexport.quantization.htp_sums import htp_sums
from quantised_graphs import cnn, quantised, workshop

CHANNELS = 32
SHAPES = {"depthwise": (CHANNELS, 1, 3, 3), "conv": (CHANNELS, CHANNELS, 3, 3), "gemm": (CHANNELS, CHANNELS)}
STEP = 2.0**-20
"""Of a sum: the scale of the inputs times that of the weights."""
FINE = {QType.S8: 8, QType.S16: 2048}
"""Steps of the sum in one of the result: so few that what is left off shows."""


def weights(kind: str, type_: QType) -> np.ndarray:
    return np.random.default_rng(2).integers(-type_.high, type_.high + 1, SHAPES[kind]).astype(type_.array)


def biases(type_: QType) -> np.ndarray:
    return np.random.default_rng(3).integers(-20_000, 20_000, CHANNELS, np.int32) * (FINE[type_] // 8)


def inputs(kind: str, zero: int) -> np.ndarray:
    shape = (512, CHANNELS) if kind == "gemm" else (1, CHANNELS, 24, 24)
    whole = np.abs(np.random.default_rng(4).normal(0, 200, shape)) - (0 if zero == 0 else 50)
    return (whole * 2.0**-12).astype(np.float32)


def layer(kind: str, type_: QType, zero: int, bias: np.ndarray) -> onnx.ModelProto:
    """x -> the layer -> y in u16, with one scale, whose integers are given."""
    taps = int(np.prod(SHAPES[kind][1:]))
    fine = FINE[type_] * (1 if taps < 10 else 4)
    constants = {
        "x_scale": np.float32(2.0**-12), "x_zero": np.uint16(zero),
        "w": weights(kind, type_), "w_scale": np.float32(STEP * 2.0**12), "w_zero": np.zeros((), type_.array),
        "b": bias.astype(np.int32), "b_scale": np.float32(STEP), "b_zero": np.int32(0),
        "y_scale": np.float32(STEP * fine), "y_zero": np.uint16(32768),
    }  # fmt: skip
    names = {name: [name, f"{name}_scale", f"{name}_zero"] for name in "xwby"}
    attributes = {"gemm": {"transB": 1}, "depthwise": {"group": CHANNELS}}.get(kind, {})
    nodes = [
        helper.make_node("QuantizeLinear", names["x"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", *names["x"][1:]], ["x_dq"]),
        *(helper.make_node("DequantizeLinear", names[name], [f"{name}_dq"]) for name in "wb"),
        helper.make_node(
            "Gemm" if kind == "gemm" else "Conv", ["x_dq", "w_dq", "b_dq"], ["s"], name="layer", **attributes
        ),
        helper.make_node("QuantizeLinear", ["s", *names["y"][1:]], ["y_q"]),
        helper.make_node("DequantizeLinear", ["y_q", *names["y"][1:]], ["y"]),
    ]
    stored = [small.constant(name, np.asarray(array)) for name, array in constants.items()]
    shape = list(inputs(kind, zero).shape)
    return small.model(nodes, [small.value("x", shape)], [small.value("y", None)], stored, opset=21)


def cut_of(kind: str, type_: QType, zero: int) -> CoarseSum:
    found = stored_sum(ir.from_proto(layer(kind, type_, zero, biases(type_))).graph.node("layer"))
    assert found is not None
    return found


def errors(folder: Path, kind: str, type_: QType, zero: int, target: str, *, made_up: bool) -> np.ndarray:
    """[channel, place]: what the HTP gives less what is right, in steps of the sum."""
    bias = cut_of(kind, type_, zero).made_up(biases(type_)) if made_up else biases(type_)
    given, right = folder / "given.onnx", folder / "right.onnx"
    small.save(layer(kind, type_, zero, bias), given)
    small.save(layer(kind, type_, zero, biases(type_)), right)
    samples = [{"x": inputs(kind, zero)}]
    got = run_on_htp(given, samples, facts.find_target(target)).outputs[0]["y"]
    expected = run_on_cpu(right, samples, optimize=False).outputs[0]["y"]
    apart = (np.asarray(got, np.float64) - np.asarray(expected)) / STEP
    return np.moveaxis(apart, 1, 0).reshape(CHANNELS, -1)


CASES = [
    *((kind, QType.S8, zero, "SM8650") for kind in SHAPES for zero in (0, 1255)),
    ("depthwise", QType.S8, 1255, "SM8450"),
]


@pytest.mark.parametrize(("kind", "type_", "zero", "target"), CASES)
def test_the_htp_leaves_off_what_is_said(
    tmp_path: Path, kind: str, type_: QType, zero: int, target: str
) -> None:
    cut = cut_of(kind, type_, zero)
    assert cut.grain == 256
    bias = cut.made_up(biases(type_))
    # What was meant, what is stored, and what the sum loses beside it.
    expected = bias - biases(type_) - cut.lost
    found = errors(tmp_path, kind, type_, zero, target, made_up=True)
    np.testing.assert_allclose(found.mean(1), expected, atol=0.06 * cut.grain)
    # Without it, every channel lies below, by up to a grain and a half.
    before = errors(tmp_path, kind, type_, zero, target, made_up=False)
    assert np.mean(found**2) < np.mean(before**2) / 2


@pytest.mark.parametrize("kind", SHAPES)
def test_beside_16_bit_weights_it_makes_up_for_the_most_part(tmp_path: Path, kind: str) -> None:
    """There the sum has four parts, and some channels lose more than can be told."""
    assert cut_of(kind, QType.S16, 1255).grain == 65536
    before, after = (
        errors(tmp_path, kind, QType.S16, 1255, "SM8650", made_up=made_up) for made_up in (False, True)
    )
    assert np.mean(after**2) < np.mean(before**2) / 1.3


@given(
    arrays.arrays(np.int32, 8, elements=st.integers(-(2**30), 2**30)),
    arrays.arrays(np.float64, 8, elements=st.floats(-40_000, 70_000)),
    st.sampled_from([1, 256, 65536]),
)
def test_a_bias_is_the_nearest_multiple(bias: np.ndarray, lost: np.ndarray, grain: int) -> None:
    stored = CoarseSum(grain, lost).made_up(bias)
    assert stored.dtype == np.int32
    assert not np.any(stored % grain)
    assert np.all(np.abs(stored - (bias + lost)) <= grain / 2)


def stored_biases(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in proto.graph.initializer
        if tensor.name.endswith("_bias")
    }


def test_biases_beside_16_bits_are_multiples_and_beside_8_bits_anything(tmp_path: Path) -> None:
    wide, narrow = (
        stored_biases(quantised(workshop(cnn(), tmp_path), scheme)) for scheme in ("16a8w", "8a8w")
    )
    assert len(wide) == len(narrow) > 1
    assert not any(np.any(bias % 256) for bias in wide.values())
    assert any(np.any(bias % 256) for bias in narrow.values())


@pytest.mark.parametrize(("kind", "type_", "zero", "target"), CASES)
def test_the_cpu_cuts_sums_off_as_the_htp_does(
    tmp_path: Path, kind: str, type_: QType, zero: int, target: str
) -> None:
    bias = cut_of(kind, type_, zero).made_up(biases(type_))
    plain, cut = tmp_path / "plain.onnx", tmp_path / "cut.onnx"
    small.save(layer(kind, type_, zero, bias), plain)
    model = ir.load(plain)
    before = ir.to_proto(model).SerializeToString()
    with htp_sums(model):
        ir.save(model, cut)
    assert ir.to_proto(model).SerializeToString() == before, "afterwards it is as it was"
    samples = [{"x": inputs(kind, zero)}]
    got = np.asarray(run_on_htp(plain, samples, facts.find_target(target)).outputs[0]["y"], np.float64)
    apart = [
        np.abs(np.asarray(run_on_cpu(path, samples, optimize=False).outputs[0]["y"]) - got) / STEP
        for path in (plain, cut)
    ]
    step = FINE[type_] * (1 if kind == "depthwise" else 4)
    # One step of the result more or less, where the plain sum is half a grain too large.
    assert np.mean(apart[0] > 1.5 * step) > 0.5
    assert np.mean(apart[1] > 1.5 * step) < 0.02


def test_grains_that_do_not_show_are_left_out(tmp_path: Path) -> None:
    model = ir.from_proto(layer("depthwise", QType.S8, 0, biases(QType.S8)))
    scale = model.graph.initializers["y_scale"]
    scale.const_value = ir.tensor(np.float32(STEP * 256 * 5), name="y_scale")
    with htp_sums(model):
        assert "Floor" not in {node.op_type for node in model.graph}


def test_a_model_of_others_may_have_no_zero_point() -> None:
    proto = layer("conv", QType.S8, 0, biases(QType.S8))
    for node in proto.graph.node:
        if node.output[0] == "x_dq":
            del node.input[2]
    assert stored_sum(ir.from_proto(proto).graph.node("layer")) is None


def test_what_is_computed_in_fp16_is_left_alone() -> None:
    model = ir.from_proto(small.conv_relu())
    assert stored_sum(model.graph.node("conv")) is None
