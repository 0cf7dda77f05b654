"""ReduceLogSumExp becomes its parts, with exponentials for which the HTP's does not wrap around.

x ──► ReduceLogSumExp(axes) ──► y        m = max(x);  y = m + log Σ exp(Clip(x − m, ±88))

The HTP takes the maximum out by itself, but not the Clip: it gives 66 for 100 beside 2, and not 100.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.reduction import ReductionRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float


class ReduceLogSumExpToMax(ReductionRule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceLogSumExp"})
    op_type: ClassVar[str] = "ReduceLogSumExp"

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        if not is_float(x):
            return MatchResult().fail("the element type is not float32 or float16", x)
        return super().check(context, x)

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        highest = self.reduce(op, "ReduceMax", x, keepdims=True)
        below = self.reduce(op, "ReduceSum", Arithmetic(op, x).exp(op.Sub(x, highest)))
        # Taken again, not reshaped: Squeeze too has its axes elsewhere in every few opsets.
        again = highest if self.keepdims else self.reduce(op, "ReduceMax", x)
        return op.Add(op.Log(below), again)
