"""Rules for what the compiler gets wrong, fails on or dies of: the same result, and right on the HTP."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.backend.failures import BackendError
from hexport.rewrite.faults.average_pool_padded import AveragePoolPadded
from hexport.rewrite.faults.conv_transpose_covered import ConvTransposeCovered
from hexport.rewrite.faults.gather_elements_positive import GatherElementsPositive
from hexport.rewrite.faults.lp_pool_padded import LpPoolPadded
from hexport.rewrite.faults.max_pool_floor import MaxPoolFloor
from hexport.rewrite.faults.pinned_faults import (
    GridSampleOnCpu,
    IsNaNOfInput,
    MaxPoolBytes,
    NonZeroOnCpu,
    ResizeByInput,
    StftByInput,
    UpsampleByInput,
)
from hexport.rewrite.faults.resize_decomposed import ResizeDecomposed
from hexport.rewrite.faults.scatter_elements_positive import ScatterElementsPositive
from hexport.rewrite.pinning import PIN
from hexport.rewrite.rule import Rule
from hexport.toolchain import WorkerError
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten

FLOAT, INT = np.float32, np.int64


def one(
    op: str,
    inputs: dict[str, Any],
    *,
    fixed: tuple[str, ...] = (),
    opset: int = 19,
    out: int = TensorProto.FLOAT,
    shape: tuple[int, ...] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; ``inputs`` by name: constants if in ``fixed``, else examples of what is fed."""
    values = [
        small.value(name, list(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in inputs.items()
        if array is not None and name not in fixed
    ]
    names = [name if array is not None else "" for name, array in inputs.items()]
    constants = [small.constant(name, inputs[name]) for name in fixed]
    node = helper.make_node(op, names, ["y"], name="node", **attributes)
    made = small.model([node], values, [small.value("y", shape and list(shape), out)], constants, opset)
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-3, 3, shape).astype(FLOAT)


def resize(mode: str, *, sizes: Any = None, scales: Any = None, **attributes: Any) -> onnx.ModelProto:
    rank = len(sizes if sizes is not None else scales)
    inputs: dict[str, Any] = {"x": image(*(1, 2, 6, 8, 4)[:rank]), "": None}
    if sizes is not None:
        inputs = {"x": inputs["x"], "roi": None, "none": None, "sizes": np.array(sizes, INT)}
        return one("Resize", inputs, fixed=("sizes",), mode=mode, **attributes)
    inputs = {"x": inputs["x"], "roi": None, "scales": np.array(scales, FLOAT)}
    return one("Resize", inputs, fixed=("scales",), mode=mode, **attributes)


def elements(op: str, axis: int = 0) -> onnx.ModelProto:
    inputs = {"x": image(3, 4), "indices": np.zeros((2, 4), INT)}
    if op == "ScatterElements":
        inputs["updates"] = image(2, 4)
    return one(op, inputs, axis=axis)


def transposed(opset: int = 11, *, bias: bool = False, **attributes: Any) -> onnx.ModelProto:
    inputs = {"x": image(1, 2, 4, 5), "w": image(2, 3, 3, 3)}
    if bias:
        inputs["b"] = image(3)
    return one("ConvTranspose", inputs, fixed=tuple(inputs)[1:], opset=opset, **attributes)


POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
CASES: dict[str, tuple[onnx.ModelProto, Rule]] = {
    "average pads": (
        one("AveragePool", {"x": image(1, 2, 9, 9)}, pads=[1, 1, 1, 1], **POOL),
        AveragePoolPadded(),
    ),
    "average ceil": (one("AveragePool", {"x": image(1, 2, 8, 8)}, ceil_mode=1, **POOL), AveragePoolPadded()),
    "lp": (
        one("LpPool", {"x": image(1, 2, 8, 8)}, kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        LpPoolPadded(),
    ),
    "max ceil": (
        one("MaxPool", {"x": image(1, 1, 2, 2)}, kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1, opset=22),
        MaxPoolFloor(),
    ),
    "transposed border": (
        transposed(strides=[3, 2], output_shape=[13, 12], bias=True),
        ConvTransposeCovered(),
    ),
    "transposed cut": (
        transposed(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        ConvTransposeCovered(),
    ),
    "resize nearest": (resize("nearest", sizes=[1, 2, 13, 17], nearest_mode="ceil"), ResizeDecomposed()),
    "resize nearest ×2": (resize("nearest", scales=[1, 1, 2, 2]), ResizeDecomposed()),
    "resize scales": (resize("linear", scales=[1, 1, 0.6, 0.6]), ResizeDecomposed()),
    "resize 3-D": (resize("linear", sizes=[1, 2, 12, 16, 8]), ResizeDecomposed()),
    "gather elements": (elements("GatherElements"), GatherElementsPositive()),
    "scatter elements": (elements("ScatterElements"), ScatterElementsPositive()),
}
PINS: dict[str, tuple[onnx.ModelProto, Rule]] = {
    "grid nearest": (
        one("GridSample", {"x": image(1, 2, 4, 4), "g": image(1, 3, 3, 2)}, opset=20, mode="nearest"),
        GridSampleOnCpu(),
    ),
    "max bytes": (
        one("MaxPool", {"x": np.zeros((1, 2, 8, 8), np.uint8)}, out=TensorProto.UINT8, **POOL),
        MaxPoolBytes(),
    ),
    "is nan": (one("IsNaN", {"x": image(2, 3)}, out=TensorProto.BOOL), IsNaNOfInput()),
    "resize": (
        one(
            "Resize",
            {"x": image(1, 1, 4, 4), "roi": None, "s": np.ones(4, FLOAT)},
            shape=(1, 1, 4, 4),
        ),
        ResizeByInput(),
    ),
    "upsample": (
        one("Upsample", {"x": image(1, 1, 4, 4), "s": np.ones(4, FLOAT)}, opset=9, shape=(1, 1, 4, 4)),
        UpsampleByInput(),
    ),
    "stft": (
        one(
            "STFT",
            {"x": image(1, 64, 1), "step": np.array(8), "window": None, "length": np.array(16)},
            fixed=("length",),
            opset=17,
            shape=(1, 7, 9, 2),
        ),
        StftByInput(),
    ),
}


def feeds_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Random inputs; indices of each kind, steps and scales that make the declared shapes."""
    feeds = random_feeds(model, seed)
    for name, low in (("indices", [[-1], [0]]), ("step", 8), ("s", np.ones(4))):
        if name in feeds:
            feeds[name] = np.broadcast_to(low, feeds[name].shape).astype(feeds[name].dtype)
    return feeds


@pytest.mark.parametrize("name", [*CASES, *(f"pin {name}" for name in PINS)])
def test_equivalent(name: str) -> None:
    before, rule = CASES[name] if name in CASES else PINS[name.removeprefix("pin ")]
    after, done = rewritten(before, type(rule)())
    assert [(a.rule, a.nodes) for a in done] == [(type(rule).__name__, ("node",))]
    assert_equivalent(before, after, [feeds_of(before, seed) for seed in range(3)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_right_on_the_npu(name: str) -> None:
    before, rule = CASES[name]
    after, _ = rewritten(before, type(rule)())
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [feeds_of(before, 0)]) >= 40


@pytest.mark.parametrize("name", ["resize nearest", "resize scales", "resize 3-D", "gather elements"])
def test_wrong_before(name: str) -> None:
    before, _ = CASES[name]
    assert not cpu_ops(before)
    assert htp_sqnr(before, before, [feeds_of(before, 0)]) < 20


@pytest.mark.parametrize("name", ["lp", "max ceil", "max bytes", "upsample", "stft"])
def test_fails_before(name: str) -> None:
    before, _ = CASES[name] if name in CASES else PINS[name]
    with pytest.raises((BackendError, WorkerError)):
        htp_sqnr(before, before, [feeds_of(before, 0)])


@pytest.mark.parametrize("name", ["grid nearest", "stft"])
def test_pinned_to_the_cpu_with_its_neighbours_on_the_npu(name: str) -> None:
    before, rule = PINS[name]
    relu = helper.make_node("Relu", ["y"], ["z"], name="relu")
    model = onnx.ModelProto()
    model.CopyFrom(before)
    model.graph.node.append(relu)
    model.graph.value_info.append(before.graph.output[0])
    model.graph.output[0].name = "z"
    after, _ = rewritten(model, type(rule)())
    (loop,) = (node for node in after.graph.node if node.op_type == "Loop")
    assert [prop.value for prop in loop.metadata_props if prop.key == PIN] == [rule_reason(loop)]
    assert "Relu" not in cpu_ops(after)
    assert htp_sqnr(model, after, [feeds_of(model, 0)]) >= 40


def rule_reason(loop: onnx.NodeProto) -> str:
    """The reason on the node inside the loop."""
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    (reason,) = (prop.value for node in body.node for prop in node.metadata_props if prop.key == PIN)
    return str(reason)


def test_pins_what_has_several_inputs_of_which_one_is_left_out() -> None:
    before = one("NonZero", {"x": np.ones((2, 2), FLOAT)}, out=TensorProto.INT64, shape=(2, 4))
    after, done = rewritten(before, NonZeroOnCpu())
    assert done
    assert_equivalent(before, after, [{"x": np.ones((2, 2), FLOAT)}])


@given(
    st.integers(5, 9),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["0", "1", "SAME_UPPER", "SAME_LOWER"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([11, 19, 22]),
)
@settings(max_examples=15, deadline=None)
def test_average_pool_of_any_form(
    size: int, kernel: int, stride: int, pads: str, ceil: bool, counted: bool, rank: int, opset: int
) -> None:
    same = pads.startswith("SAME")
    assume(same or int(pads) < kernel)
    padding: dict[str, Any] = {"auto_pad": pads} if same else {"pads": [int(pads)] * 2 * rank}
    before = one(
        "AveragePool",
        {"x": image(1, 2, *[size] * rank)},
        opset=opset,
        kernel_shape=[kernel] * rank,
        strides=[stride] * rank,
        ceil_mode=int(ceil and not same),
        count_include_pad=int(counted),
        **padding,
    )
    after, done = rewritten(before, AveragePoolPadded())
    if done:
        assert_equivalent(before, after, [random_feeds(before)])
        assert "AveragePool" not in {node.op_type for node in after.graph.node}


@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(
        ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
    ),
    st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    st.tuples(st.integers(1, 15), st.integers(1, 15)) | st.tuples(st.floats(0.3, 3.0), st.floats(0.3, 3.0)),
)
@example("nearest", "half_pixel", "floor", (1.0, 1.0625))  # the scale moves places, and no size changes
@example("linear", "half_pixel", "floor", (1.01, 1.0625))
@example("cubic", "asymmetric", "floor", (1.0, 1.0625))
@example("nearest", "asymmetric", "ceil", (2.0, 1.0625))
@example(
    "nearest", "half_pixel_symmetric", "round_prefer_floor", (1.92945411942884, 1.0)
)  # 2.5 by half a bit
@settings(max_examples=15, deadline=None)
def test_resize_of_any_form(mode: str, coordinates: str, nearest: str, to: tuple[float, float]) -> None:
    key = "sizes" if isinstance(to[0], int) else "scales"
    last = (1, 2, *to) if key == "sizes" else (1.0, 1.0, *to)
    before = resize(
        mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
        **{key: last},  # type: ignore[arg-type]
    )
    rule = ResizeDecomposed()
    after, done = rewritten(before, rule)
    assert done or rule.missed[0][1] == "the compiler computes this form right"
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "rule", "reason"),
    [
        (one("AveragePool", {"x": image(1, 2, 9, 9)}, **POOL), AveragePoolPadded(), "no window reaches past"),
        (one("LpPool", {"x": image(1, 2, 9, 9)}, **POOL), LpPoolPadded(), "no window reaches past"),
        (one("MaxPool", {"x": image(1, 2, 9, 9)}, **POOL), MaxPoolBytes(), "computes this form right"),
        (one("MaxPool", {"x": image(1, 2, 9, 9)}, **POOL), MaxPoolFloor(), "ceil_mode is not set"),
        (transposed(strides=[2, 2]), ConvTransposeCovered(), "neither output_shape nor"),
        (resize("linear", sizes=[1, 2, 12, 16]), ResizeDecomposed(), "computes this form right"),
        (resize("linear", sizes=[1, 2, 3, 4], antialias=1), ResizeDecomposed(), "antialiased"),
        (PINS["resize"][0], ResizeDecomposed(), "the scale is not constant"),
    ],
)
def test_says_why_not(model: onnx.ModelProto, rule: Rule, reason: str) -> None:
    _, done = rewritten(model, rule)
    assert not done
    assert all(reason in why for _, why in rule.missed)
    assert rule.missed
