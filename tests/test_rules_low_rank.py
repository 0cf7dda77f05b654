"""Rules for tensors of more axes than the HTP addresses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport.rewrite.support.axis_low_rank import ConcatLowRank, GatherLowRank, SoftmaxLowRank
from hexport.rewrite.support.elementwise_low_rank import ELEMENTWISE_LOW_RANK
from hexport.rewrite.support.low_rank import merged_broadcast, transpose_steps
from hexport.rewrite.support.matmul_low_rank import MatMulLowRank
from hexport.rewrite.support.reduce_low_rank import (
    ReduceMaxLowRank,
    ReduceMeanLowRank,
    ReduceMinLowRank,
    ReduceSumLowRank,
)
from hexport.rewrite.support.reshape_chain import FlattenChain, ReshapeChain, SqueezeChain
from hexport.rewrite.support.transpose_low_rank import TransposeLowRank
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten
from rule_forms import F, Form, random, typed

LOW_RANK = {rule.op_type: rule for rule in ELEMENTWISE_LOW_RANK}
WIDE = (2, 2, 1, 2, 3, 2)
FORMS = {
    "transpose": Form(TransposeLowRank, "Transpose", (WIDE,), {"perm": [0, 1, 4, 2, 5, 3]}),
    "transpose in steps": Form(
        TransposeLowRank, "Transpose", ((2, 3, 2, 3, 2, 3),), {"perm": [5, 3, 1, 4, 2, 0]}
    ),
    "add on six axes": Form(LOW_RANK["Add"], "Add", (WIDE, (2, 1, 2, 1, 1, 1))),
    "mul on six axes, constant": Form(LOW_RANK["Mul"], "Mul", (WIDE, random(3, 1))),
    "relu on six axes": Form(LOW_RANK["Relu"], "Relu", (WIDE,)),
    "clip on six axes": Form(LOW_RANK["Clip"], "Clip", (WIDE, np.array(-1, F), np.array(1, F))),
    "leaky relu on six axes": Form(LOW_RANK["LeakyRelu"], "LeakyRelu", (WIDE,), {"alpha": 0.3}),
    "softmax on six axes": Form(SoftmaxLowRank, "Softmax", (WIDE,), {"axis": 3}),
    "concat on six axes": Form(ConcatLowRank, "Concat", (WIDE, (2, 2, 1, 2, 1, 2)), {"axis": 4}),
    "mean": Form(ReduceMeanLowRank, "ReduceMean", (WIDE,), {"axes": [1, -3], "keepdims": 0}),
    "largest": Form(ReduceMaxLowRank, "ReduceMax", (WIDE, np.array([4, 5])), opset=18),
    "sum of all": Form(ReduceSumLowRank, "ReduceSum", (WIDE,)),
    "least": Form(ReduceMinLowRank, "ReduceMin", (WIDE,), {"axes": [0]}, 11),
    "matmul on six axes": Form(MatMulLowRank, "MatMul", ((2, 2, 1, 2, 3, 2), (2, 2, 1, 2, 2, 4))),
    "matmul with a matrix": Form(MatMulLowRank, "MatMul", (WIDE, random(2, 4))),
    "gather on six axes": Form(GatherLowRank, "Gather", (WIDE, np.array(1)), {"axis": -2}),
}
REASONS = {
    "6 axes are left": Form(LOW_RANK["Add"], "Add", ((2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2))),
    "over all axes from the named one": Form(SoftmaxLowRank, "Softmax", (WIDE,), {"axis": 3}, 11),
    "one number or one row": Form(GatherLowRank, "Gather", (WIDE, np.array([[1]])), {"axis": 1}),
}


@pytest.mark.parametrize("name", FORMS)
def test_equivalent(name: str) -> None:
    form = FORMS[name]
    before = form.model()
    after, done = rewritten(before, form.rule())
    assert [(a.rule, a.nodes) for a in done] == [(form.rule.__name__, ("it",))]
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], atol=1e-5)


@pytest.mark.parametrize("reason", REASONS)
def test_says_why_not(reason: str) -> None:
    form = REASONS[reason]
    rule = form.rule()
    _, done = rewritten(form.model(), rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "it"
    assert reason in why


def test_few_axes_are_not_even_a_miss() -> None:
    rules = [TransposeLowRank(), LOW_RANK["Add"]()]
    _, done = rewritten(Form(TransposeLowRank, "Transpose", ((1, 2, 1, 2, 1),)).model(), *rules)
    assert not done
    assert not any(rule.missed for rule in rules)


def windows() -> onnx.ModelProto:
    """An image cut into windows and put together again, with work on six axes in between."""
    nodes = [
        helper.make_node("Reshape", ["x", "cut"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2, 4, 5]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Add", ["c", "bias"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"], axis=-1),
        helper.make_node("MatMul", ["e", "matrix"], ["m"]),
        helper.make_node("ReduceMean", ["m"], ["n"], axes=[3], keepdims=1),
        helper.make_node("Sub", ["m", "n"], ["o"]),
        helper.make_node("Concat", ["o", "d"], ["f"], axis=5),
        helper.make_node("Gather", ["f", "one"], ["g"], axis=0),
        helper.make_node("Unsqueeze", ["g", "zero"], ["h"]),
        helper.make_node("Transpose", ["h"], ["i"], perm=[5, 3, 0, 2, 4, 1]),
        helper.make_node("Squeeze", ["i", "two"], ["j"]),
        helper.make_node("Relu", ["j"], ["y"]),
    ]
    constants = [
        small.constant("cut", np.array([2, 2, 4, 2, 3, 4])),
        small.constant("bias", random(3, 4)),
        small.constant("matrix", random(4, 4) - 1),
        small.constant("one", np.array(1)),
        small.constant("zero", np.array([0])),
        small.constant("two", np.array([2])),
    ]
    return typed(small.model(nodes, [small.value("x", [2, 8, 6, 4])], [], constants), ["y"])


def test_windows_of_six_axes() -> None:
    before = windows()
    rules = [TransposeLowRank, ReshapeChain, SqueezeChain, SoftmaxLowRank, ConcatLowRank, GatherLowRank]
    rules += [MatMulLowRank, ReduceMeanLowRank]
    after, _ = rewritten(before, *(rule() for rule in (*rules, *ELEMENTWISE_LOW_RANK)))
    inferred = onnx.shape_inference.infer_shapes(after)
    assert max(len(v.type.tensor_type.shape.dim) for v in inferred.graph.value_info) <= 5
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])
    assert {"Transpose", "Reshape", "Softmax", "Concat", "Add"} <= cpu_ops(before)
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


def test_flatten_after_six_axes() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "wide"], ["a"]),
        helper.make_node("Flatten", ["a"], ["y"], axis=2, name="it"),
    ]
    wide = small.constant("wide", np.array(WIDE))
    before = typed(small.model(nodes, [small.value("x", [48])], [], [wide]), ["y"])
    after, done = rewritten(before, FlattenChain())
    assert [a.nodes for a in done] == [("it",)]
    assert len(after.graph.node) <= 2  # the Reshape and the constant of its shape
    assert_equivalent(before, after, [random_feeds(before)])


@given(st.permutations(range(7)), st.lists(st.integers(1, 4), min_size=7, max_size=7))
@settings(max_examples=50, deadline=None)
def test_transposes_in_steps(perm: list[int], shape: list[int]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    y = x
    for few, order in transpose_steps(shape, perm):
        assert len(few) <= 5
        y = y.reshape(few).transpose(order)
    np.testing.assert_array_equal(y.ravel(), x.transpose(perm).ravel())


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=7))
def test_merged_axes_broadcast_alike(axes: list[tuple[int, bool, bool]]) -> None:
    a, b = ([1 if axis[which] else axis[0] for axis in axes] for which in (1, 2))
    x, y = np.arange(np.prod(a)).reshape(a), np.arange(np.prod(b)).reshape(b) * 100
    few_x, few_y = merged_broadcast([a, b])
    np.testing.assert_array_equal((x.reshape(few_x) + y.reshape(few_y)).ravel(), (x + y).ravel())
