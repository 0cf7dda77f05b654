"""Dynamically quantised products go back to float, with their constant weights dequantised.

x ──► DynamicQuantizeLinear ──► ConvInteger ──► Cast ──► Mul ──► y          x ──► Conv ──► y
                  w, zero ───────────┘   x_scale · w_scale ┘      w_scale·(w − zero) ─┘

The weights stay what they were. The activations are no longer rounded to 8 bits, so the result differs from
the integer one by that rounding, half of x's range / 255 in every element of x, and is nearer to the model
before it was quantised.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import array
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import constant

_FLOAT_OF = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}


class IntegerProductToFloat(Rule):
    cures: ClassVar[frozenset[str]] = frozenset(_FLOAT_OF) | {"DynamicQuantizeLinear"}

    _product: ir.Node
    _x: ir.Value
    _weight: NDArray[Any]

    def pattern(self, op: Any, whole: Any, scale: Any) -> Any:
        return op.Mul(op.Cast(whole, _allow_other_attributes=True), scale)

    def check(self, context: MatchContext, whole: ir.Value, scale: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        product, scales = whole.producer(), scale.producer()
        if product is None or product.op_type not in _FLOAT_OF:
            return result.fail("it is not the scaling of an integer product", whole)
        source = _source(product)
        if source is None:
            return result.fail("its first operand is not quantised dynamically", product)
        if scales is None or scales.op_type != "Mul" or source.outputs[1] not in scales.inputs:
            return result.fail("the scale is not that of both operands", scale)
        factor = next((v for v in scales.inputs if v is not source.outputs[1]), None)
        weight = _dequantized(product, constant(factor))
        if weight is None or source.inputs[0] is None:
            return result.fail("the weight, its zero point or its scale is not constant", product)
        self._product, self._x, self._weight = product, source.inputs[0], weight
        return result

    def rewrite(self, op: Any, whole: ir.Value, scale: ir.Value) -> Any:  # noqa: ARG002
        build = getattr(op, _FLOAT_OF[self._product.op_type])
        return build(self._x, array(op, self._weight), **self._product.attributes)


class DynamicMatMulToFloat(NodeRule):
    """The same, fused by ONNX Runtime."""

    cures: ClassVar[frozenset[str]] = frozenset({"DynamicQuantizeMatMul"})
    op_type: ClassVar[str] = "DynamicQuantizeMatMul"
    domain: ClassVar[str] = MICROSOFT
    places: ClassVar[tuple[int, int, int, int]] = (1, 2, 3, 4)
    """Where the weight, its scale, its zero point and the bias are."""

    def why_not(self) -> str:
        if self.source() is None:
            return "its first operand is not quantised dynamically"
        return "" if self._weight() is not None else "the weight, its zero point or its scale is not constant"

    def replace(self, op: Any) -> Any:
        weight = self._weight()
        if weight is None:
            return None
        y = op.MatMul(self.source(), array(op, weight))
        bias = self.input(self.places[3])
        return y if bias is None else op.Add(y, bias)

    def source(self) -> ir.Value | None:
        return self.input(0)

    def _weight(self) -> NDArray[Any] | None:
        weight, scale, zero, _ = self.places
        return _scaled(constant(self.input(weight)), constant(self.input(scale)), self.input(zero))


class MatMulIntegerToFloatApart(DynamicMatMulToFloat):
    cures: ClassVar[frozenset[str]] = frozenset({"MatMulIntegerToFloat", "DynamicQuantizeLinear"})
    op_type: ClassVar[str] = "MatMulIntegerToFloat"
    places: ClassVar[tuple[int, int, int, int]] = (1, 3, 5, 6)

    def source(self) -> ir.Value | None:
        made = _source(self.node)
        return None if made is None or self.input(2) is not made.outputs[1] else made.inputs[0]


def _source(product: ir.Node) -> ir.Node | None:
    """The DynamicQuantizeLinear that made the first operand."""
    first = product.inputs[0]
    maker = None if first is None else first.producer()
    return maker if maker is not None and maker.op_type == "DynamicQuantizeLinear" else None


def _dequantized(product: ir.Node, scale: NDArray[Any] | None) -> NDArray[Any] | None:
    weight = constant(product.inputs[1])
    if product.op_type == "ConvInteger" and scale is not None and weight is not None and scale.size > 1:
        # One scale a channel reaches us shaped for the result: 1, C, 1, 1.
        scale = scale.reshape(-1, *[1] * (weight.ndim - 1))
    return _scaled(weight, scale, product.inputs[3] if len(product.inputs) > 3 else None)


def _scaled(
    weight: NDArray[Any] | None, scale: NDArray[Any] | None, zero: ir.Value | None
) -> NDArray[Any] | None:
    offset = np.zeros((), np.int32) if zero is None else constant(zero)
    if weight is None or scale is None or offset is None:
        return None
    if offset.size > 1 and offset.ndim < weight.ndim and scale.ndim == weight.ndim:
        offset = offset.reshape(scale.shape)
    centred = weight.astype(np.float64) - offset.astype(np.float64)
    dequantized: NDArray[Any] = (centred * scale.astype(np.float64)).astype(np.float32)
    return dequantized
