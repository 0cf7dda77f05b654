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
from hexport.rewrite.opset import opset_version

_FIRST_CLIP_WITH_INPUTS = 11


class ShrinkToWhere(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Shrink"})
    op_type: ClassVar[str] = "Shrink"

    def __init__(self) -> None:
        super().__init__()
        self._opset = 0

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = super().check(context, x)
        self._opset = opset_version(context)
        if result and self.attribute("lambd", 0.5) < 0:
            return result.fail("lambd is negative, so that both sides overlap", context.root)
        return result

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        threshold, bias = self.attribute("lambd", 0.5), self.attribute("bias", 0.0)
        if bias == threshold:
            return do("Sub", x, self._clipped(do, x, threshold))
        above = do("Sub", x, bias) if bias else x
        below = do("Add", x, bias) if bias else x
        low = do("Where", do("Less", x, -threshold), below, 0.0)
        return do("Where", do("Greater", x, threshold), above, low)

    def _clipped(self, do: Arithmetic, x: ir.Value, bound: float) -> ir.Value:
        if self._opset < _FIRST_CLIP_WITH_INPUTS:
            # Not Clip with its bounds as attributes: the backend takes that, and lets everything through.
            return do("Min", do("Max", x, -bound), bound)
        return do("Clip", x, -bound, bound)
