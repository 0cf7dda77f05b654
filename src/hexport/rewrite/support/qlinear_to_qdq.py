"""ONNX Runtime's QLinear operators become the float operator between DequantizeLinear and QuantizeLinear.

a ──► QLinearAdd ──► y          a ──► DequantizeLinear ──► Add ──► QuantizeLinear ──► y
b ────────┘                     b ──► DequantizeLinear ─────┘

The compiler reads this form as one integer operator; it does not know the other.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import transpose


class _QLinear(NodeRule):
    """Inputs come in threes, value, scale and zero point; the result's scale and zero point are last."""

    domain: ClassVar[str] = MICROSOFT
    float_op: ClassVar[str]
    attributes: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[int] = 0
    result: ClassVar[int] = -2

    def why_not(self) -> str:
        if self.int_attribute("channels_last", 0):
            return "its channels are last"
        return ""

    def replace(self, op: Any) -> Any:
        values = [self.dequantized(op, i) for i in self.places()]
        kept = {name: a for name, a in self.node.attributes.items() if name in self.attributes}
        return self.quantized(op, getattr(op, self.float_op)(*values, **kept))

    def places(self) -> range:
        count = (len(self.node.inputs) - 2) // 3
        return range(self.first, self.first + 3 * count, 3)

    def dequantized(self, op: Any, place: int) -> ir.Value:
        zero = self.input(place + 2)
        inputs = [self.required(place), self.required(place + 1), *([] if zero is None else [zero])]
        made: ir.Value = op.DequantizeLinear(*inputs)
        return made

    def quantized(self, op: Any, value: ir.Value) -> ir.Value:
        place = self.result % len(self.node.inputs)
        zero = self.input(place + 1)
        made: ir.Value = op.QuantizeLinear(value, self.required(place), *([] if zero is None else [zero]))
        return made


class QLinearAddToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearAdd"})
    op_type: ClassVar[str] = "QLinearAdd"
    float_op: ClassVar[str] = "Add"


class QLinearMulToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearMul"})
    op_type: ClassVar[str] = "QLinearMul"
    float_op: ClassVar[str] = "Mul"


class QLinearSigmoidToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearSigmoid"})
    op_type: ClassVar[str] = "QLinearSigmoid"
    float_op: ClassVar[str] = "Sigmoid"


class QLinearLeakyReluToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearLeakyRelu"})
    op_type: ClassVar[str] = "QLinearLeakyRelu"
    float_op: ClassVar[str] = "LeakyRelu"
    attributes: ClassVar[tuple[str, ...]] = ("alpha",)


class QLinearGlobalAveragePoolToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearGlobalAveragePool"})
    op_type: ClassVar[str] = "QLinearGlobalAveragePool"
    float_op: ClassVar[str] = "GlobalAveragePool"


class QLinearAveragePoolToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearAveragePool"})
    op_type: ClassVar[str] = "QLinearAveragePool"
    float_op: ClassVar[str] = "AveragePool"
    attributes: ClassVar[tuple[str, ...]] = (
        *("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"),
    )


class QLinearConcatToQdq(_QLinear):
    """The result's scale and zero point are first here."""

    cures: ClassVar[frozenset[str]] = frozenset({"QLinearConcat"})
    op_type: ClassVar[str] = "QLinearConcat"
    float_op: ClassVar[str] = "Concat"
    attributes: ClassVar[tuple[str, ...]] = ("axis",)
    first: ClassVar[int] = 2
    result: ClassVar[int] = 0


class QLinearSoftmaxToQdq(_QLinear):
    cures: ClassVar[frozenset[str]] = frozenset({"QLinearSoftmax"})
    op_type: ClassVar[str] = "QLinearSoftmax"
    float_op: ClassVar[str] = "Softmax"
    attributes: ClassVar[tuple[str, ...]] = ("axis",)

    def why_not(self) -> str:
        said = self.int_attribute("opset", 13)
        if (said >= 13) != (self.opset >= 13):
            return f"it means the Softmax of opset {said}, the model's is {self.opset}"
        return super().why_not()


class QGemmToQdq(_QLinear):
    """A, B, the bias in int32 at the scale of the product, and the result's scale."""

    cures: ClassVar[frozenset[str]] = frozenset({"QGemm"})
    op_type: ClassVar[str] = "QGemm"
    float_op: ClassVar[str] = "Gemm"

    def why_not(self) -> str:
        if self.input(7) is None:
            return "its result is float"
        if self.float_attribute("alpha", 1.0) != 1:
            return "alpha is not 1"
        rank = self.required(4).shape
        return "" if rank is not None and len(rank) == 0 else "the weight's scale is not one number"

    def replace(self, op: Any) -> Any:
        left, right = self.dequantized(op, 0), self.dequantized(op, 3)
        if self.int_attribute("transA", 0):
            left = transpose(op, left, (1, 0))
        inputs = [left, right]
        if (bias := self.input(6)) is not None:
            inputs.append(op.DequantizeLinear(bias, op.Mul(self.required(1), self.required(4))))
        y = op.Gemm(*inputs, transB=self.int_attribute("transB", 0))
        zero = self.input(8)
        return op.QuantizeLinear(y, self.required(7), *([] if zero is None else [zero]))
