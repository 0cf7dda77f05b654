"""Celu becomes Elu, which it is but for a scale before and after.

x ──► Celu(α) ──► y        x ──► Mul(1/α) ──► Elu(1) ──► Mul(α) ──► y
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule


class CeluToElu(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Celu"})
    op_type: ClassVar[str] = "Celu"

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = super().check(context, x)
        if result and self.attribute("alpha", 1.0) <= 0:
            return result.fail("alpha is not positive", context.root)
        return result

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        alpha = self.attribute("alpha", 1.0)
        if alpha == 1:
            return do("Elu", x)
        return do("Mul", do("Elu", do("Mul", x, 1 / alpha)), alpha)
