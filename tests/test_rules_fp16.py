"""The rules that keep numbers inside fp16: each against the fault it cures, on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.preparation.ranges import Range
from hexport.rewrite.precision.hypot import Hypot
from hexport.rewrite.precision.l2_scaled import L2Scaled
from hexport.rewrite.precision.layernorm_scaled import SumToMean
from hexport.rewrite.precision.log_of_square import LogOfSquare
from hexport.rewrite.precision.log_power import LogPower
from hexport.rewrite.precision.log_scaled import LogScaled
from hexport.rewrite.precision.root_of_squares import RootOfSquares
from hexport.rewrite.precision.sigmoid_exact import SigmoidExact
from hexport.rewrite.precision.to_float32 import ToFloat32
from hexport.rewrite.rule import Purpose, Rule
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten

Feed = dict[str, np.ndarray]
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
FEW = settings(max_examples=10, deadline=None)
GOOD_DB = 40.0


def unary(op_type: str, shape: Sequence[int], opset: int = 17, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x"], ["y"], name="node", **attributes)
    return small.model([node], [small.value("x", list(shape))], [small.value("y", None)], opset=opset)


def scaled_normal(shape: Sequence[int], scale: float, seed: int = 0) -> Feed:
    return {"x": (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)}


def assert_cured(before: onnx.ModelProto, rule: Rule, feeds: Sequence[Feed], atol: float = 1e-5) -> None:
    """The fault shows before the rule and not after; the CPU sees no difference; all is on the NPU."""
    after, done = rewritten(before, rule)
    assert [a.rule for a in done] == [type(rule).__name__]
    assert rule.purpose is Purpose.RANGE
    assert_equivalent(before, after, feeds, rtol=1e-4, atol=atol)
    assert htp_sqnr(before, before, feeds) < GOOD_DB - 5
    assert htp_sqnr(before, after, feeds) > GOOD_DB
    assert not cpu_ops(after)


def assert_misses(before: onnx.ModelProto, rule: Rule, reason: str) -> None:
    _, done = rewritten(before, rule)
    assert not done
    assert any(reason in why for _, why in rule.missed), rule.missed


# Sigmoid


def test_sigmoid_of_small_probabilities_is_cured() -> None:
    feeds = [{"x": np.linspace(-14, -7, 64, dtype=np.float32).reshape(4, 16)}]
    assert_cured(unary("Sigmoid", (4, 16)), SigmoidExact(), feeds, atol=1e-7)


@given(SHAPES)
@FEW
def test_sigmoid_any_shape(shape: tuple[int, ...]) -> None:
    before = unary("Sigmoid", shape)
    after, _ = rewritten(before, SigmoidExact())
    assert_equivalent(before, after, [random_feeds(before, seed, -90, 90) for seed in range(3)])


def test_sigmoid_says_why_not() -> None:
    gate = small.model(
        [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])],
        [small.value("x", [4])],
        [small.value("y", [4])],
    )
    assert_misses(gate, SigmoidExact(), "gates something")
    assert_misses(unary("Sigmoid", (4,)), SigmoidExact({"x": Range(-3, 5, 0.1)}), "never below -4")


# Lengths and norms


def length_model(shape: Sequence[int], *, power: bool = False) -> onnx.ModelProto:
    """x → two halves → √(a² + b²)."""
    square = [
        helper.make_node("Pow", [side, "two"], [f"{side}2"])
        if power
        else helper.make_node("Mul", [side, side], [f"{side}2"])
        for side in ("a", "b")
    ]
    return small.model(
        [
            helper.make_node("Split", ["x"], ["a", "b"], axis=0),
            *square,
            helper.make_node("Add", ["a2", "b2"], ["sum"]),
            helper.make_node("Sqrt", ["sum"], ["y"], name="root"),
        ],
        [small.value("x", [2, *shape])],
        [small.value("y", None)],
        [small.constant("two", np.array(2, np.float32))] if power else [],
    )


@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_length_is_cured(scale: float) -> None:
    assert_cured(length_model((4, 16)), Hypot(), [scaled_normal((2, 4, 16), scale)], atol=1e-9)


@given(SHAPES, st.booleans())
@FEW
def test_length_any_shape(shape: tuple[int, ...], power: bool) -> None:
    before = length_model(shape, power=power)
    after, _ = rewritten(before, Hypot())
    zero = {"x": np.zeros((2, *shape), np.float32)}
    assert_equivalent(before, after, [*(random_feeds(before, seed) for seed in range(3)), zero])


def test_length_says_why_not() -> None:
    before = small.model(
        [helper.make_node("Add", ["x", "x"], ["s"]), helper.make_node("Sqrt", ["s"], ["y"])],
        [small.value("x", [4])],
        [small.value("y", [4])],
    )
    assert_misses(before, Hypot(), "not the root of two squares")


def root_model(
    op_type: str, shape: Sequence[int], axis: int, *, keepdims: int = 1, opset: int = 17
) -> onnx.ModelProto:
    """x → √Σx²."""
    axes_are_input = opset >= (13 if op_type == "ReduceSum" else 18)
    inputs, attributes = (["axes"], {}) if axes_are_input else ([], {"axes": [axis]})
    summed = "x2" if op_type == "ReduceSum" else "x"
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["x2"]),
        helper.make_node(op_type, [summed, *inputs], ["sum"], keepdims=keepdims, **attributes),
        helper.make_node("Sqrt", ["sum"], ["y"]),
    ]
    return small.model(
        nodes if op_type == "ReduceSum" else nodes[1:],
        [small.value("x", list(shape))],
        [small.value("y", None)],
        [small.constant("axes", np.array([axis]))] if axes_are_input else [],
        opset=opset,
    )


def test_norm_is_cured() -> None:
    feeds = [scaled_normal((3, 256), 100)]
    assert_cured(unary("ReduceL2", (3, 256), axes=[1], keepdims=0), L2Scaled(), feeds)


def test_root_of_a_sum_of_squares_is_cured() -> None:
    assert_cured(root_model("ReduceSum", (3, 256), 1), RootOfSquares(), [scaled_normal((3, 256), 100)])


@given(
    SHAPES,
    st.sampled_from(["ReduceSum", "ReduceSumSquare"]),
    st.integers(0, 1),
    st.sampled_from([11, 17, 20]),
)
@FEW
def test_root_any_shape(shape: tuple[int, ...], op_type: str, keepdims: int, opset: int) -> None:
    before = root_model(op_type, shape, len(shape) - 1, keepdims=keepdims, opset=opset)
    after, done = rewritten(before, RootOfSquares())
    assert done
    assert_equivalent(before, after, [random_feeds(before), {"x": np.zeros(shape, np.float32)}])


# Means


def mean_model(
    shape: Sequence[int], axis: int, divisor: float, *, op_type: str = "Div", opset: int = 17
) -> onnx.ModelProto:
    """The mean square, by hand: x → x² → ReduceSum → ÷ N."""
    inputs, attributes = (["s", "axes"], {}) if opset >= 13 else (["s"], {"axes": [axis]})
    constants = [small.constant("n", np.array([divisor if op_type == "Div" else 1 / divisor], np.float32))]
    return small.model(
        [
            helper.make_node("Mul", ["x", "x"], ["s"]),
            helper.make_node("ReduceSum", inputs, ["t"], name="sum", keepdims=1, **attributes),
            helper.make_node(op_type, ["t", "n"], ["y"]),
        ],
        [small.value("x", list(shape))],
        [small.value("y", None)],
        constants + ([small.constant("axes", np.array([axis]))] if opset >= 13 else []),
        opset=opset,
    )


def test_mean_square_is_cured() -> None:
    assert_cured(mean_model((4, 512), 1, 512), SumToMean(), [scaled_normal((4, 512), 50)], atol=1e-2)


@given(
    SHAPES.filter(lambda shape: shape[-1] > 1), st.sampled_from(["Mul", "Div"]), st.sampled_from([11, 13, 18])
)
@FEW
def test_mean_any_shape(shape: tuple[int, ...], op_type: str, opset: int) -> None:
    before = mean_model(shape, len(shape) - 1, 2.0 * shape[-1], op_type=op_type, opset=opset)
    after, done = rewritten(before, SumToMean())
    assert done
    assert "ReduceSum" not in {node.op_type for node in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


def test_mean_says_why_not() -> None:
    assert_misses(mean_model((4, 512), 1, 2.0), SumToMean(), "not divided by about as many")
    plain = small.model(
        [helper.make_node("ReduceSum", ["x"], ["t"]), helper.make_node("Exp", ["t"], ["y"])],
        [small.value("x", [4])],
        [small.value("y", None)],
    )
    assert_misses(plain, SumToMean(), "Exp takes the sum")


# Logarithms


def log_model(make: Callable[[str], list[onnx.NodeProto]], floor: float) -> onnx.ModelProto:
    return small.model(
        [
            helper.make_node("Softmax", ["x"], ["p"], axis=-1),
            *make("p"),
            helper.make_node("Log", ["floored"], ["y"], name="log"),
        ],
        [small.value("x", [4, 16])],
        [small.value("y", [4, 16])],
        [small.constant("floor", np.array(floor, np.float32))],
    )


def clipped(value: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Clip", [value, "floor"], ["floored"])]


def added(value: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Add", ["floor", value], ["floored"])]


@pytest.mark.parametrize("make", [clipped, added])
def test_log_with_a_tiny_floor_is_cured(make: Callable[[str], list[onnx.NodeProto]]) -> None:
    # Softmax of this spreads over hundreds of decades: nearly all of it lies at the floor.
    assert_cured(log_model(make, 1e-10), LogScaled(), [scaled_normal((4, 16), 200)])


def test_log_takes_the_measured_range() -> None:
    before = small.model(
        [*clipped("x"), helper.make_node("Log", ["floored"], ["y"], name="log")],
        [small.value("x", [4, 16])],
        [small.value("y", [4, 16])],
        [small.constant("floor", np.array(1e-10, np.float32))],
    )
    assert_misses(before, LogScaled(), "how large its input gets is not known")
    assert_misses(before, LogScaled({"x": Range(0, 1e3, 0.1)}), "cannot hold both")
    assert_misses(log_model(clipped, 1e-3), LogScaled(), "fp16 holds the floor")
    feeds = [{"x": np.maximum(scaled_normal((4, 16), 2)["x"], 0)}]
    assert_cured(before, LogScaled({"x": Range(0, 8, 0.1)}), feeds)


def log_square_model(shape: Sequence[int], join: str, floor: float = 1e-10) -> onnx.ModelProto:
    return small.model(
        [
            helper.make_node("Mul", ["x", "x"], ["power"]),
            helper.make_node(join, ["power", "floor"], ["floored"]),
            helper.make_node("Log", ["floored"], ["y"], name="log"),
        ],
        [small.value("x", list(shape))],
        [small.value("y", None)],
        [small.constant("floor", np.array(floor, np.float32))],
    )


@pytest.mark.parametrize("join", ["Clip", "Add"])
def test_log_of_a_square_is_cured(join: str) -> None:
    magnitudes = np.geomspace(1e-5, 1e3, 64, dtype=np.float32).reshape(4, 16)
    assert_cured(log_square_model((4, 16), join), LogOfSquare(), [{"x": magnitudes}])


@given(SHAPES, st.sampled_from(["Clip", "Add", "Max"]))
@FEW
def test_log_of_a_square_any_shape(shape: tuple[int, ...], join: str) -> None:
    before = log_square_model(shape, join)
    after, _ = rewritten(before, LogOfSquare())
    feeds = [scaled_normal(shape, 10.0**level) for level in (-6, -5, 0)]
    assert_equivalent(before, after, [*feeds, {"x": np.zeros(shape, np.float32)}], atol=1e-5)


def test_log_of_a_square_says_why_not() -> None:
    assert_misses(log_square_model((4,), "Add", 0.1), LogOfSquare(), "no better in fp16")
    assert_misses(log_model(clipped, 1e-10), LogOfSquare(), "not the logarithm of a square")


def spectrogram(
    samples: int, floor: float, *, join: str = "Clip", opset: int = 17, mel: int = 6
) -> onnx.ModelProto:
    """Frames of 32 samples → DFT by two convolutions → power → mel matrix → floor → log."""
    n = np.arange(32)
    angles = 2 * np.pi * np.outer(np.arange(17), n) / 32
    window = np.hanning(32)
    weights = np.random.default_rng(1).uniform(0, 0.2, (17, mel)).astype(np.float32)
    return small.model(
        [
            helper.make_node("Conv", ["x", "cos"], ["re"], strides=[16]),
            helper.make_node("Conv", ["x", "sin"], ["im"], strides=[16]),
            helper.make_node("Pow", ["re", "two"], ["re2"]),
            helper.make_node("Mul", ["im", "im"], ["im2"]),
            helper.make_node("Add", ["re2", "im2"], ["power"]),
            helper.make_node("Transpose", ["power"], ["frames"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["frames", "weights"], ["mel"]),
            helper.make_node(join, ["mel", "floor"], ["floored"]),
            helper.make_node("Log", ["floored"], ["y"], name="log"),
        ],
        [small.value("x", [1, 1, samples])],
        [small.value("y", None)],
        [
            small.constant("cos", (np.cos(angles) * window)[:, None].astype(np.float32)),
            small.constant("sin", (np.sin(angles) * window)[:, None].astype(np.float32)),
            small.constant("two", np.array(2, np.float32)),
            small.constant("weights", weights),
            small.constant("floor", np.array(floor, np.float32)),
        ],
        opset=opset,
    )


@pytest.mark.parametrize(("loudness", "join"), [(2e-4, "Add"), (1e4, "Clip")])
def test_log_power_is_cured_for_quiet_and_loud(loudness: float, join: str) -> None:
    before = spectrogram(320, 1e-10, join=join)
    feed = scaled_normal((1, 1, 320), loudness)
    feed["x"] *= np.linspace(0.05, 1, 320, dtype=np.float32)
    assert_cured(before, LogPower(), [feed], atol=1e-3)


@pytest.mark.parametrize("join", ["Clip", "Add", "Max"])
@pytest.mark.parametrize("opset", [13, 18])
def test_log_power_in_silence_and_at_any_level(join: str, opset: int) -> None:
    before = spectrogram(160, 1e-10, join=join, opset=opset)
    after, done = rewritten(before, LogPower())
    assert [a.nodes for a in done] == [("log",)]
    levels = [scaled_normal((1, 1, 160), 10.0**level, level + 9) for level in range(-6, 5)]
    silence = {"x": np.zeros((1, 1, 160), np.float32)}
    assert_equivalent(before, after, [*levels, silence], atol=2e-4)
    if opset == 13:
        assert htp_sqnr(before, after, [silence]) > GOOD_DB


def test_log_power_is_not_applied_twice() -> None:
    once, _ = rewritten(spectrogram(160, 1e-10), LogPower())
    _, again = rewritten(once, LogPower())
    assert not again


def test_log_power_says_why_not() -> None:
    assert_misses(unary("Log", (4,)), LogPower(), "no constant floor")
    assert_misses(log_model(clipped, 1e-10), LogPower(), "not made of squares")


# float64


def double_model() -> onnx.ModelProto:
    """float → double arithmetic with a double constant → a double and a float output."""
    return small.model(
        [
            helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
            helper.make_node("Mul", ["d", "k"], ["scaled"]),
            helper.make_node("Softmax", ["scaled"], ["y"], axis=-1),
            helper.make_node("Cast", ["scaled"], ["z"], to=TensorProto.FLOAT),
        ],
        [small.value("x", [2, 8])],
        [small.value("y", [2, 8], TensorProto.DOUBLE), small.value("z", [2, 8])],
        [small.constant("k", np.array([0.5]))],
    )


def test_double_becomes_float_inside_and_stays_at_the_edge() -> None:
    before = double_model()
    model = ir.from_proto(before)
    assert ToFloat32(ir.DataType.DOUBLE)(model).modified
    assert not ToFloat32(ir.DataType.DOUBLE)(model).modified
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    feeds = [random_feeds(before, seed) for seed in range(3)]
    assert_equivalent(before, after, feeds)
    assert cpu_ops(after) == {"Cast"}
    assert htp_sqnr(before, after, feeds) > GOOD_DB
