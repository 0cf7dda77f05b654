"""ReduceLogSum becomes the logarithm of the sum.

x ──► ReduceLogSum(axes) ──► y        x ──► ReduceSum(axes) ──► Log ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.reduction import ReductionRule
from hexport.rewrite.values import is_float


class ReduceLogSumToLog(ReductionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceLogSum"})
    op_type: ClassVar[str] = "ReduceLogSum"

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        if not is_float(x):
            return MatchResult().fail("the element type is not float32 or float16", x)
        return super().check(context, x)

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return op.Log(self.reduce(op, "ReduceSum", x))
