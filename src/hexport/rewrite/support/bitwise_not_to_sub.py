"""BitwiseNot of a signed whole number is a subtraction, by the way such numbers are written.

x ──► BitwiseNot ──► y        −1 ──► Sub ──► y
                              x ──────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import number
from hexport.rewrite.rule import Rule

_SIGNED = (ir.DataType.INT32, ir.DataType.INT64)


class BitwiseNotToSub(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"BitwiseNot"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.BitwiseNot(x)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if x.dtype not in _SIGNED:
            return result.fail("the element type is not int32 or int64", x)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return op.Sub(number(op, -1, x), x)
