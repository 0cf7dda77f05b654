"""Pow → Mul."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport.rewrite.support.pow_to_mul import PowToMul
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten


def pow_model(exponent: float, shape: tuple[int, ...] = (2, 5), dtype: type = np.float32) -> onnx.ModelProto:
    return small.model(
        [helper.make_node("Pow", ["x", "e"], ["y"], name="pow")],
        [small.value("x", list(shape))],
        [small.value("y", list(shape))],
        [small.constant("e", np.array(exponent, dtype))],
    )


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_equivalent(exponent: int, dtype: type) -> None:
    before = pow_model(exponent, dtype=dtype)
    after, done = rewritten(before, PowToMul())
    assert [(a.rule, a.nodes) for a in done] == [("PowToMul", ("pow",))]
    assert "Pow" not in {node.op_type for node in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


@given(st.lists(st.integers(1, 6), max_size=5).map(tuple), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_shape(shape: tuple[int, ...], exponent: int) -> None:
    before = pow_model(exponent, shape)
    after, _ = rewritten(before, PowToMul())
    assert_equivalent(before, after, [random_feeds(before)])


@pytest.mark.parametrize(
    ("exponent", "reason"), [(0.5, "not a whole number"), (5, "from 1 to 4"), (-1, "from 1 to 4")]
)
def test_says_why_not(exponent: float, reason: str) -> None:
    rule = PowToMul()
    _, done = rewritten(pow_model(exponent), rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "pow"
    assert reason in why


def test_the_backend_before_and_after() -> None:
    before = pow_model(3)
    after, _ = rewritten(before, PowToMul())
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50
