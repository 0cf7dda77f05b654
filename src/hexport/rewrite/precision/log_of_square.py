"""The logarithm of a square is twice that of the number, which needs half the range.

a ──► a² ──► Add(·, e) ──► Log ──► y      a ──► hypot(·, √e) ──► Log ──► Mul(·, 2) ──► y
a ──► a² ──► Clip(f, ·) ──► Log ──► y     a ──► Abs ──► Log ──► Max(·, ln √f) ──► Mul(·, 2) ──► y

``hypot.py`` draws the hypot. A floor of 1e-10 is 0 in fp16; its root, 1e-5, is not.
"""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import SMALLEST, SMALLEST_NORMAL, number, squared
from hexport.rewrite.precision.hypot import length
from hexport.rewrite.precision.log_floor import Floor, find_floor
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class LogOfSquare(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"Log"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Log(x)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if not is_float(x):
            return result.fail("its element type is not a float that the NPU has", x)
        bound = find_floor(x)
        base = squared(bound.value) if bound is not None else None
        if bound is None or base is None:
            return result.fail("it is not the logarithm of a square with a constant floor", x)
        if not SMALLEST**2 <= bound.low < SMALLEST_NORMAL:
            return result.fail(f"the root of the floor {bound.low:g} is no better in fp16", x)
        self._bound, self._base = bound, base
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        bound, a = self._bound, op.Abs(self._base)
        high = bound.high**0.5 if bound.high < inf else inf
        root = Floor(self._base, bound.low**0.5, high)
        if bound.added:
            a = length(op, a, number(op, x, root.low), like=x)
        return op.Mul(root.logarithm(op, a, []), number(op, x, 2.0))
