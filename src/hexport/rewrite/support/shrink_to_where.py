"""Shrink becomes comparisons; the soft one, whose bias is its threshold, needs none.

x ──► Shrink(λ, b) ──► y        b = λ:   x ──┬────────────► Sub ──► y
                                             └─► Clip(±λ) ──┘

                                else:    Where(x > λ, x − b, Where(x < −λ, x + b, 0))
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule


class ShrinkToWhere(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Shrink"})
    op_type: ClassVar[str] = "Shrink"

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = super().check(context, x)
        if result and self.attribute("lambd", 0.5) < 0:
            return result.fail("lambd is negative, so that both sides overlap", context.root)
        return result

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        threshold, bias = self.attribute("lambd", 0.5), self.attribute("bias", 0.0)
        if bias == threshold:
            return do("Sub", x, do("Clip", x, -threshold, threshold))
        above = do("Sub", x, bias) if bias else x
        below = do("Add", x, bias) if bias else x
        low = do("Where", do("Less", x, -threshold), below, 0.0)
        return do("Where", do("Greater", x, threshold), above, low)
