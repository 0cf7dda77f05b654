"""Rules for quantised models: QLinear operators to QDQ, dynamically quantised products to float."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport.rewrite.support.integer_to_float import (
    DynamicMatMulToFloat,
    IntegerProductToFloat,
    MatMulIntegerToFloatApart,
)
from hexport.rewrite.support.qlinear_to_qdq import (
    QGemmToQdq,
    QLinearAddToQdq,
    QLinearAveragePoolToQdq,
    QLinearConcatToQdq,
    QLinearGlobalAveragePoolToQdq,
    QLinearLeakyReluToQdq,
    QLinearMulToQdq,
    QLinearSigmoidToQdq,
    QLinearSoftmaxToQdq,
)
from rule_checks import cpu, cpu_ops, htp_sqnr, random_feeds, rewritten
from rule_forms import I32, MICROSOFT, U8, F, Form, Typed, contrib, random, side_by_side, typed

Q = (np.array(0.05, F), np.array(120, U8))
IMAGE = Typed((1, 4, 6, 6), U8)
INTEGER = {
    "add": contrib(QLinearAddToQdq, "QLinearAdd", (Typed((2, 3), U8), *Q, Typed((2, 3), U8), *Q, *Q)),
    "mul": contrib(QLinearMulToQdq, "QLinearMul", (Typed((2, 3), U8), *Q, Typed((3,), U8), *Q, *Q)),
    "sigmoid": contrib(QLinearSigmoidToQdq, "QLinearSigmoid", (Typed((2, 3), U8), *Q, *Q)),
    "leaky": contrib(QLinearLeakyReluToQdq, "QLinearLeakyRelu", (Typed((2, 3), U8), *Q, *Q), alpha=0.3),
    "global": contrib(QLinearGlobalAveragePoolToQdq, "QLinearGlobalAveragePool", (IMAGE, *Q, *Q)),
    "average": contrib(
        QLinearAveragePoolToQdq, "QLinearAveragePool", (IMAGE, *Q, *Q), kernel_shape=[2, 2], strides=[2, 2]
    ),
    "concat": contrib(
        QLinearConcatToQdq, "QLinearConcat", (*Q, Typed((2, 3), U8), *Q, Typed((2, 1), U8), *Q), axis=1
    ),
    "softmax": Form(
        QLinearSoftmaxToQdq,
        "QLinearSoftmax",
        (Typed((2, 3), U8), *Q, np.array(1 / 256, F), np.array(0, U8)),
        {"opset": 13},
        domain=MICROSOFT,
    ),
    "gemm": contrib(
        QGemmToQdq,
        "QGemm",
        (Typed((2, 8), U8), *Q, np.arange(32, dtype=U8).reshape(8, 4), *Q, np.arange(4, dtype=I32), *Q),
    ),
}


def bytes_feeds(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """The whole range of uint8, not the small numbers that indices need."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 256, x.shape).astype(x.dtype) for name, x in random_feeds(proto).items()}


@pytest.mark.parametrize("name", INTEGER)
def test_integers_stay_within_one_step(name: str) -> None:
    form = INTEGER[name]
    before = form.model()
    after, done = rewritten(before, form.rule())
    assert len(done) == 1
    for seed in range(3):
        feeds = bytes_feeds(before, seed)
        for old, new in zip(cpu(before, feeds), cpu(after, feeds), strict=True):
            assert old.dtype == new.dtype
            assert np.abs(old.astype(int) - new.astype(int)).max() <= 1


def integer_product(
    op: str, shape: tuple[int, ...], weight: np.ndarray, scale: np.ndarray, **more: Any
) -> onnx.ModelProto:
    """What ONNX Runtime's dynamic quantiser writes."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantize"),
        helper.make_node(op, ["q", "w", "z", "wz"], ["i"], name="product", **more),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["scale"], name="scales"),
        helper.make_node("Mul", ["f", "scale"], ["y"], name="it"),
    ]
    zero = np.full(scale.size if op == "MatMulInteger" and scale.size > 1 else (), 120, weight.dtype)
    constants = [small.constant("w", weight), small.constant("wz", zero), small.constant("ws", scale)]
    return typed(small.model(nodes, [small.value("x", list(shape))], [], constants), ["y"])


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, shape).astype(U8)


def fused_matmul() -> onnx.ModelProto:
    proto = integer_product("MatMulInteger", (2, 3, 16), whole(16, 4), np.array(0.01, F))
    del proto.graph.node[1:]
    proto.graph.node.append(
        helper.make_node(
            "MatMulIntegerToFloat", ["q", "w", "s", "ws", "z", "wz"], ["y"], name="it", domain=MICROSOFT
        )
    )
    return proto


DYNAMIC = contrib(
    DynamicMatMulToFloat,
    "DynamicQuantizeMatMul",
    (
        (2, 3, 16),
        np.arange(64, dtype=np.int8).reshape(16, 4),
        np.array(0.01, F),
        np.array(3, np.int8),
        random(4),
    ),
)
PRODUCTS = {
    "matmul": (
        IntegerProductToFloat,
        integer_product("MatMulInteger", (2, 16), whole(16, 4), np.array(0.01, F)),
    ),
    "matmul, a scale a column": (
        IntegerProductToFloat,
        integer_product("MatMulInteger", (2, 3, 16), whole(16, 4), random(4) / 100),
    ),
    "conv": (
        IntegerProductToFloat,
        integer_product("ConvInteger", (1, 4, 6, 6), whole(3, 4, 3, 3), np.array(0.01, F), pads=[1] * 4),
    ),
    "conv of rows": (
        IntegerProductToFloat,
        integer_product("ConvInteger", (1, 4, 9), whole(3, 4, 3), random(1, 3, 1) / 100, strides=[2]),
    ),
    "fused matmul": (MatMulIntegerToFloatApart, fused_matmul()),
    "dynamic matmul": (DynamicMatMulToFloat, DYNAMIC.model()),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_integer_products_differ_by_the_rounding_of_x_only(name: str) -> None:
    rule, before = PRODUCTS[name]
    after, done = rewritten(before, rule())
    assert [a.nodes for a in done] == [("it",)]
    assert {node.op_type for node in after.graph.node} <= {"MatMul", "Conv", "Add", "Constant"}
    weight = next(t for t in map(onnx.numpy_helper.to_array, before.graph.initializer) if t.ndim > 1)
    for seed in range(3):
        feeds = random_feeds(before, seed)
        ((old,), (new,)) = cpu(before, feeds), cpu(after, feeds)
        assert old.shape == new.shape
        (x,) = feeds.values()
        # Rounding x errs by half a step, as does rounding its zero point; both at every product summed over.
        largest = 0.03 * 256 * (max(x.max(), 0) - min(x.min(), 0)) / 255
        assert np.abs(old - new).max() <= largest * weight.size / weight.shape[0 if weight.ndim > 2 else 1]
        assert 10 * np.log10(np.sum(old**2) / np.sum((old - new) ** 2)) > 35


REFUSED = ["conv of rows", "fused matmul", "dynamic matmul"]
"""The backend takes the other forms; a model with one that it refuses has them all rewritten."""


def test_products_on_the_backend() -> None:
    before = side_by_side([PRODUCTS[name][1] for name in REFUSED])
    assert {"ConvInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"} <= cpu_ops(before)
    after, _ = rewritten(before, *(PRODUCTS[name][0]() for name in REFUSED))
    assert not cpu_ops(after)
    # Against the rewritten model: what the rounding of x made is the test's above.
    assert htp_sqnr(after, after, [random_feeds(before)]) > 50


def test_integers_on_the_backend() -> None:
    before = side_by_side([form.model() for form in INTEGER.values()])
    assert {form.op for form in INTEGER.values()} <= cpu_ops(before)
    after, _ = rewritten(before, *(form.rule() for form in INTEGER.values()))
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [bytes_feeds(before)]) > 40


REASONS = {
    "its channels are last": contrib(
        QLinearGlobalAveragePoolToQdq, "QLinearGlobalAveragePool", (IMAGE, *Q, *Q), channels_last=1
    ),
    "is not constant": contrib(
        DynamicMatMulToFloat, "DynamicQuantizeMatMul", ((2, 4), Typed((4, 3), U8), np.array(0.01, F))
    ),
    "its result is float": contrib(
        QGemmToQdq, "QGemm", (Typed((2, 8), U8), *Q, np.arange(32, dtype=U8).reshape(8, 4), *Q)
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_says_why_not(reason: str) -> None:
    form = REASONS[reason]
    rule = form.rule()
    _, done = rewritten(form.model(), rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "it"
    assert reason in why
