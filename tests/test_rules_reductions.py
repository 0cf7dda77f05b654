"""Rules for reductions, global pooling and normalisation that the backend refuses or computes wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.rewrite.faults.log_softmax_to_max import LogSoftmaxToMax
from hexport.rewrite.faults.reduce_log_sum_exp_to_max import ReduceLogSumExpToMax
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.global_lp_pool_to_sum import GlobalLpPoolToSum
from hexport.rewrite.support.mean_variance_to_mean import MeanVarianceToMean
from hexport.rewrite.support.reduce_l1_to_sum import ReduceL1ToSum
from hexport.rewrite.support.reduce_log_sum_to_log import ReduceLogSumToLog
from hexport.rewrite.support.reduce_prod_to_mul import ReduceProdToMul
from hexport.rewrite.support.reduce_sum_square_to_sum import ReduceSumSquareToSum
from rule_checks import assert_equivalent, cpu, cpu_ops, htp_sqnr, random_feeds, rewritten

REFUSED: dict[str, type[Rule]] = {
    "ReduceL1": ReduceL1ToSum,
    "ReduceSumSquare": ReduceSumSquareToSum,
    "ReduceLogSum": ReduceLogSumToLog,
    "ReduceProd": ReduceProdToMul,
}
REDUCTIONS: dict[str, type[Rule]] = {**REFUSED, "ReduceLogSumExp": ReduceLogSumExpToMax}
AXES_AS_INPUT = 18


def reduction(
    op: str,
    axes: list[int] | None,
    *,
    shape: tuple[int, ...] = (2, 5, 6),
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """One reduction, its axes an attribute or an input as the opset has it."""
    inputs, constants = ["x"], []
    if axes is not None and opset >= AXES_AS_INPUT:
        inputs.append("axes")
        constants.append(small.constant("axes", np.array(axes, np.int64)))
    elif axes is not None:
        attributes["axes"] = axes
    return small.model(
        [helper.make_node(op, inputs, ["y"], name="n", **attributes)],
        [small.value("x", list(shape), dtype)],
        [small.value("y", _reduced_shape(shape, axes, attributes), dtype)],
        constants,
        opset,
    )


def _reduced_shape(shape: tuple[int, ...], axes: list[int] | None, attributes: dict[str, Any]) -> list[Any]:
    if axes == [] and attributes.get("noop_with_empty_axes"):
        return list(shape)
    gone = {axis % len(shape) for axis in axes} if axes else set(range(len(shape)))
    kept = attributes.get("keepdims", 1)
    return [1 if axis in gone else size for axis, size in enumerate(shape) if kept or axis not in gone]


def feeds_of(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Positive numbers of moderate size, of which logarithms and products exist in fp16."""
    return random_feeds(proto, seed, 0.5, 1.6)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("opset", [11, 13, 18, 23])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]])
def test_equivalent(op: str, opset: int, axes: list[int] | None) -> None:
    for keepdims in (0, 1):
        before = reduction(op, axes, opset=opset, keepdims=keepdims)
        after, done = rewritten(before, REDUCTIONS[op]())
        assert [(a.rule, a.nodes) for a in done] == [(REDUCTIONS[op].__name__, ("n",))]
        assert op not in {node.op_type for node in after.graph.node}
        assert_equivalent(before, after, [feeds_of(before, seed) for seed in range(3)])


@given(
    st.sampled_from(sorted(REDUCTIONS)),
    st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.data(),
)
@settings(max_examples=15, deadline=None)
def test_any_shape(op: str, shape: tuple[int, ...], keepdims: bool, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    before = reduction(op, axes, shape=shape, keepdims=int(keepdims))
    after, done = rewritten(before, REDUCTIONS[op]())
    assert done
    assert_equivalent(before, after, [feeds_of(before)])


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceSumSquare", "ReduceProd"])
def test_whole_numbers(op: str) -> None:
    before = reduction(op, [1], dtype=TensorProto.INT32)
    after, done = rewritten(before, REDUCTIONS[op]())
    assert done
    assert_equivalent(before, after, [{"x": random_feeds(before, seed)["x"] - 1} for seed in range(3)])


def why_not(proto: onnx.ModelProto, rule: Rule) -> str:
    _, done = rewritten(proto, rule)
    assert not done
    return " ".join(why for _, why in rule.missed)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_says_why_not(op: str) -> None:
    rule = REDUCTIONS[op]
    no_axes = reduction(op, [], opset=18, noop_with_empty_axes=1)
    assert "reduces nothing" in why_not(no_axes, rule())
    dynamic = reduction(op, [1], opset=18)
    dynamic.graph.input.append(small.value("axes", [1], TensorProto.INT64))
    del dynamic.graph.initializer[:]
    assert "not constant" in why_not(dynamic, rule())


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp"])
def test_logarithms_are_of_floats(op: str) -> None:
    whole = reduction(op, [1], dtype=TensorProto.INT32)
    assert "float32 or float16" in why_not(whole, REDUCTIONS[op]())


def test_a_product_needs_a_fixed_length() -> None:
    proto = reduction("ReduceProd", [1])
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    assert "not fixed" in why_not(proto, ReduceProdToMul())
    assert "length 0" in why_not(reduction("ReduceProd", [1], shape=(2, 0)), ReduceProdToMul())


@pytest.mark.parametrize("op", REFUSED)
def test_the_backend_before_and_after(op: str) -> None:
    before = reduction(op, [1], keepdims=0)
    after, _ = rewritten(before, REFUSED[op]())
    assert cpu_ops(before) == {op}
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [feeds_of(before)]) > 50


def test_log_sum_exp_of_numbers_far_apart() -> None:
    before = reduction("ReduceLogSumExp", [1], shape=(3, 4))
    after, _ = rewritten(before, ReduceLogSumExpToMax())
    feeds = [{"x": np.array([[100, 2, 3, 4], [-30, -29, -31, -28], [20, 19, 300, 1]], np.float32)}]
    assert_equivalent(before, after, feeds)
    assert htp_sqnr(before, before, feeds) < 20
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, feeds) > 50


@pytest.mark.parametrize("opset", [11, 13, 18, 23])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": 1}, {"axis": 2}], ids=str)
def test_log_softmax(opset: int, attributes: dict[str, int]) -> None:
    before = over_image("LogSoftmax", (2, 3, 4), opset, **attributes)
    after, done = rewritten(before, LogSoftmaxToMax())
    assert done
    assert_equivalent(before, after, [random_feeds(before, seed, -50, 50) for seed in range(3)], atol=1e-5)


def test_log_softmax_of_numbers_far_apart() -> None:
    before = over_image("LogSoftmax", (1, 6))
    after, _ = rewritten(before, LogSoftmaxToMax())
    # One is masked out, which must not change the others.
    feeds = [{"x": np.array([[0, 1, 2, 3, -1, -300]], np.float32)}]
    assert_equivalent(before, after, feeds)
    assert htp_sqnr(before, before, feeds) < 10
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, feeds) > 50


# GlobalLpPool and MeanVarianceNormalization


def over_image(op: str, shape: tuple[int, ...], opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    return small.model(
        [helper.make_node(op, ["x"], ["y"], name="n", **attributes)],
        [small.value("x", list(shape))],
        [small.value("y", None)],
        opset=opset,
    )


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("opset", [11, 18])
def test_global_lp_pool(p: int, opset: int) -> None:
    before = over_image("GlobalLpPool", (2, 3, 5, 4), opset, p=p)
    after, done = rewritten(before, GlobalLpPoolToSum())
    assert done
    zeros = {"x": np.zeros((2, 3, 5, 4), np.float32)}
    assert_equivalent(before, after, [zeros, *(random_feeds(before, seed) for seed in range(3))])


def test_global_lp_pool_on_the_backend() -> None:
    before = over_image("GlobalLpPool", (2, 3, 5, 4))
    after, _ = rewritten(before, GlobalLpPoolToSum())
    assert cpu_ops(before) == {"GlobalLpPool"}
    assert not cpu_ops(after)
    # The squares of the second sample are far beyond fp16, their root is not.
    feeds = [random_feeds(before), random_feeds(before, low=-2000, high=2000)]
    assert htp_sqnr(before, after, feeds) > 50


@given(st.sampled_from([(2, 3), (1, 4, 6), (2, 3, 4, 5), (1, 2, 3, 2, 4)]), st.data())
@settings(max_examples=15, deadline=None)
def test_mean_variance(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True).map(sorted))
    if np.prod([shape[axis] for axis in axes]) == 1:
        return  # one number has no variance; ONNX's expansion divides its rounding error by 1e-9
    before = over_image("MeanVarianceNormalization", shape, axes=axes)
    after, done = rewritten(before, MeanVarianceToMean())
    assert done
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("opset", [11, 18, 23])
def test_mean_variance_by_default_axes(opset: int) -> None:
    before = over_image("MeanVarianceNormalization", (2, 3, 4, 5), opset)
    after, done = rewritten(before, MeanVarianceToMean())
    assert done
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], rtol=1e-3, atol=1e-4)


def test_mean_variance_of_equal_numbers_is_zero() -> None:
    before = over_image("MeanVarianceNormalization", (1, 2, 3, 4))
    after, _ = rewritten(before, MeanVarianceToMean())
    # By ONNX's own definition; ONNX Runtime leaves its epsilon out and gives NaN.
    (result,) = cpu(after, {"x": np.full((1, 2, 3, 4), 8, np.float32)})
    assert not result.any()


def test_mean_variance_on_the_backend() -> None:
    before = over_image("MeanVarianceNormalization", (2, 3, 8, 8))
    after, _ = rewritten(before, MeanVarianceToMean())
    assert cpu_ops(before) == {"MeanVarianceNormalization"}
    assert not cpu_ops(after)
    # The squares of the second sample's deviations are far beyond fp16.
    feeds = [random_feeds(before), random_feeds(before, low=-2000, high=2000)]
    assert htp_sqnr(before, after, feeds) > 50
