"""Pow with a small whole exponent becomes multiplications, which every HTP generation runs in any scheme.

x ──► Pow(·, 3) ──► y          x ──┬─► Mul ──► Mul ──► y
                                   ├────┘       │
                                   └────────────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.rule import Rule
from hexport.rewrite.values import scalar


class PowToMul(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"Pow"})
    max_exponent: ClassVar[int] = 4

    def pattern(self, op: Any, x: Any, exponent: Any) -> Any:
        return op.Pow(x, exponent)

    def check(self, context: MatchContext, x: ir.Value, exponent: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        power = scalar(exponent)
        if power is None:
            return result.fail("the exponent is not one constant number", exponent)
        if power not in range(1, self.max_exponent + 1):
            return result.fail(
                f"the exponent {power:g} is not a whole number from 1 to {self.max_exponent}", exponent
            )
        return result

    def rewrite(self, op: Any, x: ir.Value, exponent: ir.Value) -> Any:
        power = int(scalar(exponent) or 1)
        if power == 1:
            return op.Identity(x)
        square = op.Mul(x, x)
        if power == 2:
            return square
        return op.Mul(square, x) if power == 3 else op.Mul(square, square)
