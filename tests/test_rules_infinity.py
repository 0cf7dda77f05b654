"""Rules for what the HTP lacks: infinities, and tensors without elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport.backend.failures import BackendError
from hexport.rewrite.faults.empty_reduction import (
    EmptyReduceMax,
    EmptyReduceMin,
    EmptyReduceProd,
    EmptyReduceSum,
    EmptyReduction,
)
from hexport.rewrite.faults.equal_infinity import EqualInfinity
from hexport.rewrite.faults.softmax_is_nan import SoftmaxIsNaN
from hexport.rewrite.rule import Rule
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, rewritten

MASK = np.array([[False, False, False, False], [True, False, True, True]])
X = np.array([[1, 2, -3, 4], [5, -6, 7, 8]], np.float32)


def masked_attention(how: str, *, masks: int = 1, sign: float = -1.0) -> onnx.ModelProto:
    """Softmax over what a mask leaves; rows of which nothing is left are 0, found in one of two ways."""
    nodes = [helper.make_node("Where", ["mask", "zero", "infinity"], ["bias"], name="mask")]
    if masks == 2:
        nodes.append(helper.make_node("Add", ["bias", "bias"], ["sum"], name="masks"))
    bias = nodes[-1].output[0]
    nodes.append(helper.make_node("Add" if sign < 0 else "Sub", ["x", bias], ["scores"], name="add"))
    nodes.append(helper.make_node("Softmax", ["scores"], ["shares"], name="softmax"))
    if how == "nan":
        nodes.append(helper.make_node("IsNaN", ["shares"], ["nothing"], name="asked"))
    else:
        reduction = "ReduceMax" if sign < 0 else "ReduceMin"
        nodes.append(helper.make_node(reduction, [bias], ["largest"], axes=[-1], keepdims=1))
        nodes.append(helper.make_node("Equal", ["largest", "infinity"], ["nothing"], name="asked"))
    nodes.append(helper.make_node("Where", ["nothing", "zero", "shares"], ["y"], name="where"))
    constants = [
        small.constant("zero", np.zeros((), np.float32)),
        small.constant("infinity", np.array(sign * np.inf, np.float32)),
    ]
    inputs = [small.value("x", [2, 4]), small.value("mask", [2, 4], TensorProto.BOOL)]
    return small.model(nodes, inputs, [small.value("y", [2, 4])], constants)


@pytest.mark.parametrize(
    ("proto", "rule"),
    [
        (masked_attention("equal"), EqualInfinity()),
        (masked_attention("equal", masks=2), EqualInfinity()),
        (masked_attention("equal", sign=1.0), EqualInfinity()),
        (masked_attention("nan"), SoftmaxIsNaN()),
        (masked_attention("nan", masks=2), SoftmaxIsNaN()),
    ],
    ids=["equal", "equal, two masks", "equal to +∞", "nan", "nan, two masks"],
)
def test_rows_masked_everywhere(proto: onnx.ModelProto, rule: Rule) -> None:
    feeds = [{"x": X, "mask": MASK}]
    assert htp_sqnr(proto, proto, feeds) < 20
    after, done = rewritten(proto, rule)
    assert [(a.rule, a.nodes) for a in done] == [(type(rule).__name__, ("asked",))]
    assert_equivalent(proto, after, [*feeds, {"x": X, "mask": ~MASK}, {"x": X, "mask": np.ones_like(MASK)}])
    assert not cpu_ops(after)
    assert htp_sqnr(proto, after, feeds) >= 40


@pytest.mark.parametrize(
    ("with_what", "dtype", "why"),
    [
        (np.array(1.0, np.float32), TensorProto.FLOAT, "neither side is a constant infinity"),
        (np.full((1, 1, 1), -np.inf, np.float32), TensorProto.FLOAT, "the infinity has more axes"),
        (np.array(1, np.int64), TensorProto.INT64, "the element type is not float"),
    ],
)
def test_equal_is_left(with_what: np.ndarray, dtype: int, why: str) -> None:
    node = helper.make_node("Equal", ["x", "c"], ["y"], name="equal")
    proto = small.model(
        [node],
        [small.value("x", [2, 4], dtype)],
        [small.value("y", None, TensorProto.BOOL)],
        [small.constant("c", with_what)],
    )
    rule = EqualInfinity()
    _, done = rewritten(proto, rule)
    assert not done
    assert why in rule.missed[0][1]


def reduction(op: str, shape: list[Any], out: list[Any], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    node = helper.make_node(op, ["x", "axes"], ["y"], name="reduce")
    axes = small.value("axes", [1], TensorProto.INT64)
    return small.model(
        [node], [small.value("x", shape, dtype), axes], [small.value("y", out, dtype)], opset=20
    )


@pytest.mark.parametrize("rule", [EmptyReduceSum, EmptyReduceProd, EmptyReduceMax, EmptyReduceMin])
def test_reduction_of_nothing(rule: type[EmptyReduction]) -> None:
    proto = reduction(rule.op_type, [2, 0, 4], [2, 1, 4])
    after, done = rewritten(proto, rule())
    assert [a.nodes for a in done] == [("reduce",)]
    feeds = {"x": np.zeros((2, 0, 4), np.float32), "axes": np.array([1])}
    assert_equivalent(proto, after, [feeds])


def test_the_compiler_fails_on_a_reduction_of_nothing() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("ReduceSum", ["a", "axes"], ["y"], name="sum"),
    ]
    axes = small.constant("axes", np.array([1]))
    proto = small.model(nodes, [small.value("x", [2, 0, 4])], [small.value("y", [2, 1, 4])], [axes])
    feeds = [{"x": np.zeros((2, 0, 4), np.float32)}]
    with pytest.raises(BackendError):
        htp_sqnr(proto, proto, feeds)
    after, _ = rewritten(proto, EmptyReduceSum())
    assert htp_sqnr(proto, after, feeds) == np.inf


@pytest.mark.parametrize(
    ("proto", "rule", "why"),
    [
        (reduction("ReduceSum", [2, 3, 4], [2, 1, 4]), EmptyReduceSum(), "it has numbers to reduce"),
        (reduction("ReduceSum", [2, 0, 4], [1, 0, 4]), EmptyReduceSum(), "no elements either"),
        (reduction("ReduceMax", [2, 0], [2, 1], TensorProto.INT64), EmptyReduceMax(), "have no infinity"),
    ],
)
def test_reduction_is_left(proto: onnx.ModelProto, rule: Rule, why: str) -> None:
    _, done = rewritten(proto, rule)
    assert not done
    assert why in rule.missed[0][1]
