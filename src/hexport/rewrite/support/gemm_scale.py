"""Gemm's alpha and beta go into its constants, or into Mul: the backend takes alpha 1 and beta 0 or 1.

A ──► Gemm(alpha, beta) ──► y          A ──► Gemm ──► y
B ───────┤                             alpha·B ─┤
C ───────┘                             beta·C ──┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, filled
from hexport.rewrite.values import constant, is_float


class GemmScale(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Gemm"})
    op_type: ClassVar[str] = "Gemm"

    def why_not(self) -> str:
        alpha, beta = self._factors()
        if alpha == 1 and (beta in (0, 1) or self.input(2) is None):
            return "alpha is 1, and beta 0 or 1"
        return "" if is_float(self.required(0)) else "it is not known to be float"

    def replace(self, op: Any) -> Any:
        alpha, beta = self._factors()
        left, right, bias = self.required(0), self.required(1), self.input(2)
        if constant(right) is not None or constant(left) is None:
            right = _scaled(op, right, alpha, left)
        else:
            left = _scaled(op, left, alpha, left)
        inputs = [left, right]
        if bias is not None and beta != 0:
            inputs.append(_scaled(op, bias, beta, left))
        sides = {name: self.int_attribute(name, 0) for name in ("transA", "transB")}
        return op.Gemm(*inputs, **sides)

    def _factors(self) -> tuple[float, float]:
        return self.float_attribute("alpha", 1.0), self.float_attribute("beta", 1.0)


def _scaled(op: Any, value: ir.Value, factor: float, like: ir.Value) -> ir.Value:
    if factor == 1:
        return value
    known = constant(value)
    if known is not None:
        return array(op, (known * factor).astype(known.dtype))  # type: ignore[operator]  # a float array
    made: ir.Value = op.Mul(value, filled(op, factor, like))
    return made
