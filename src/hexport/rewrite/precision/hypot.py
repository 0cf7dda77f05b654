"""The length of (a, b) without squaring a and b, whose squares leave fp16 long before they do.

a ──► a² ──┐                       big = Max(|a|, |b|), small = Min(|a|, |b|)
b ──► b² ──┴► Add ──► Sqrt ──► y   y = big · Sqrt(1 + (small / Max(big, 2⁻²⁴))²)

The quotient is at most 1, so its square cannot overflow, and where it underflows it does not matter.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import SMALLEST, number, squared
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import constant, is_float


class Hypot(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"Sqrt"})

    def pattern(self, op: Any, p: Any, q: Any) -> Any:
        return op.Sqrt(op.Add(p, q))

    def check(self, context: MatchContext, p: ir.Value, q: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        a, b = squared(p), squared(q)
        if a is None or b is None:
            return result.fail("it is not the root of two squares", [p, q])
        if not is_float(a):
            return result.fail("its element type is not a float that the NPU has", a)
        if constant(a) is not None or constant(b) is not None:
            return result.fail("one of the two is a constant", [a, b])
        self._sides = (a, b)
        return result

    def rewrite(self, op: Any, p: ir.Value, q: ir.Value) -> Any:  # noqa: ARG002
        a, b = self._sides
        return length(op, op.Abs(a), op.Abs(b), like=p)


def length(op: Any, a: Any, b: Any, like: ir.Value) -> Any:
    """√(a² + b²) of two numbers that are not negative; of the element type of ``like``."""
    big = op.Max(a, b)
    ratio = op.Div(op.Min(a, b), op.Max(big, number(op, like, SMALLEST)))
    return op.Mul(big, op.Sqrt(op.Add(op.Mul(ratio, ratio), number(op, like, 1.0))))
