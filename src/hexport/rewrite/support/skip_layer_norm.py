"""ONNX Runtime's fused residual and norm is taken apart again: the backend has the norm, not the fusion.

x ──► SkipLayerNormalization ──► y          x ──► Add ──► (Add bias) ──┬─► LayerNormalization ──► y
skip ────────┤              └──► sum        skip ──┘                   └─► sum
gamma, beta, bias
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import filled, layer_norm, reduce, root_mean_square_norm
from hexport.rewrite.values import is_float

_FIRST_RMS_NORM = 23


class SkipLayerNorm(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"SkipLayerNormalization"})
    op_type: ClassVar[str] = "SkipLayerNormalization"
    domain: ClassVar[str] = MICROSOFT
    bias_input: ClassVar[int] = 4

    def why_not(self) -> str:
        # The element type of what contrib operators give is not inferred; the scale's is known.
        gamma = self.required(2)
        return "" if is_float(gamma) else "the scale is not known to be float"

    def replace(self, op: Any) -> Any:
        total = op.Add(self.required(0), self.required(1))
        bias = self.input(self.bias_input)
        if bias is not None:
            total = op.Add(total, bias)
        y = self.norm(op, total)
        if self.outputs == 1:
            return y
        # Mean and deviation are there for training; what nobody uses goes with the unused nodes.
        gamma = self.required(2)
        mean = reduce(op, "ReduceMean", total, [-1], self.opset)
        centred = op.Sub(total, mean)
        variance = reduce(op, "ReduceMean", op.Mul(centred, centred), [-1], self.opset)
        deviation = op.Sqrt(op.Add(variance, filled(op, self.epsilon(), gamma)))
        return [y, mean, op.Reciprocal(deviation), total]

    def norm(self, op: Any, total: ir.Value) -> ir.Value:
        return layer_norm(op, total, self.required(2), self.input(3), self.epsilon(), self.opset)

    def epsilon(self) -> float:
        return self.float_attribute("epsilon", 1e-12)


class SkipLayerNormWithSum(SkipLayerNorm):
    """The sum is used too: the next residual begins there."""

    outputs: ClassVar[int] = 4


class SkipRmsNorm(SkipLayerNorm):
    cures: ClassVar[frozenset[str]] = frozenset({"SkipSimplifiedLayerNormalization"})
    op_type: ClassVar[str] = "SkipSimplifiedLayerNormalization"
    bias_input: ClassVar[int] = 3

    def norm(self, op: Any, total: ir.Value) -> ir.Value:
        gamma = self.required(2)
        made: ir.Value
        if self.opset >= _FIRST_RMS_NORM:
            made = op.RMSNormalization(total, gamma, axis=-1, epsilon=self.epsilon())
        else:
            made = op.Mul(root_mean_square_norm(op, total, gamma, self.epsilon(), self.opset), gamma)
        return made


class SkipRmsNormWithSum(SkipRmsNorm):
    outputs: ClassVar[int] = 4
