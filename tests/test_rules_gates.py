"""Sigmoid or Tanh of a sum → of a difference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport.rewrite.precision.sum_before_activation import SumBeforeSigmoid, SumBeforeTanh
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten

RULES = {"Sigmoid": SumBeforeSigmoid, "Tanh": SumBeforeTanh}


def gate(op: str, shape: tuple[int, ...] = (4, 64), constant: str = "") -> onnx.ModelProto:
    """op(a + b), where one of the two may be constant."""
    inputs = [small.value(name, list(shape)) for name in "ab" if name != constant]
    numbers = np.linspace(-1, 1, int(np.prod(shape[-1:])), dtype=np.float32).reshape(shape[-1:])
    return small.model(
        [
            helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
            helper.make_node(op, ["sum"], ["y"], name="gate"),
        ],
        inputs,
        [small.value("y", list(shape))],
        [small.constant(constant, numbers)] if constant else [],
    )


def biased_gate(op: str) -> onnx.ModelProto:
    """op(x·w + b)."""
    model = gate(op, constant="b")
    model.graph.node.insert(0, helper.make_node("MatMul", ["x", "w"], ["a"]))
    model.graph.input[0].name = "x"
    weight = np.random.default_rng(0).normal(0, 0.1, (64, 64)).astype(np.float32)
    model.graph.initializer.append(small.constant("w", weight))
    return model


def split_gate(op: str) -> onnx.ModelProto:
    """Both halves of the gate, multiplied: what a gated unit does."""
    model = gate(op)
    model.graph.node.extend(
        [
            helper.make_node("Split", ["y", "halves"], ["left", "right"], axis=-1),
            helper.make_node("Mul", ["left", "right"], ["z"]),
        ]
    )
    model.graph.initializer.append(small.constant("halves", np.array([32, 32])))
    model.graph.output.pop()
    model.graph.output.append(small.value("z", [4, 32]))
    return model


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("constant", ["", "a", "b"])
def test_equivalent(op: str, constant: str) -> None:
    before = gate(op, constant=constant)
    after, done = rewritten(before, RULES[op]())
    assert [a.nodes for a in done] == [("gate",)]
    expected = ["Sub", op] if constant else ["Neg", "Sub", op]
    assert [node.op_type for node in after.graph.node] == expected
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


@given(
    st.sampled_from(list(RULES)),
    st.lists(st.integers(1, 4), max_size=4).map(tuple),
    st.sampled_from(["", "b"]),
)
@settings(max_examples=15, deadline=None)
def test_any_shape(op: str, shape: tuple[int, ...], constant: str) -> None:
    before = gate(op, shape, constant)
    after, _ = rewritten(before, RULES[op]())
    assert_equivalent(before, after, [random_feeds(before)])


def test_a_sum_that_is_used_elsewhere_is_left_alone() -> None:
    """The compiler does not fuse it."""
    before = gate("Tanh")
    before.graph.output.append(small.value("sum", [4, 64]))
    _, done = rewritten(before, SumBeforeTanh())
    assert not done
    assert htp_sqnr(before, before, [random_feeds(before)]) > 60


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("make", [gate, biased_gate])
def test_the_backend_before_and_after(op: str, make: Callable[[str], onnx.ModelProto]) -> None:
    before = make(op)
    after, _ = rewritten(before, RULES[op]())
    feeds = [random_feeds(before, seed) for seed in range(3)]
    assert not cpu_ops(after)
    assert htp_sqnr(before, before, feeds) < 52
    assert htp_sqnr(before, after, feeds) > 60


@pytest.mark.parametrize("op", RULES)
def test_split_it_is_garbage_before(op: str) -> None:
    before = split_gate(op)
    after, _ = rewritten(before, RULES[op]())
    feeds = [random_feeds(before, seed) for seed in range(3)]
    assert htp_sqnr(before, before, feeds) < 10
    assert htp_sqnr(before, after, feeds) > 55
