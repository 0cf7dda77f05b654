"""LpPool over padding: the powers are summed by a depthwise Conv, to which its zeros add nothing.

x ──► LpPool(2, pads | SAME_*) ──► y          x ──► x² ──► Conv(1, pads) ──► Sqrt ──► y

SAME_UPPER kills the compiler's process, and a Pad before LpPool is fused back into it and comes out wrong.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.windows import padding, walks, window_sums
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class LpPoolPadded(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"LpPool"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.LpPool(x, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if not is_float(x):
            return result.fail("the element type is not float", x)
        if context.root.attributes.get_int("ceil_mode", 0):
            return result.fail(
                "runtimes disagree on ceil_mode; the backend leaves it to the CPU", context.root
            )
        along = walks(context.root)
        if isinstance(along, str):
            return result.fail(along, context.root)
        if not any(padding(along)):
            return result.fail("no window reaches past the data", context.root)
        self._along, self._p = along, context.root.attributes.get_int("p", 2)
        if self._p not in (1, 2):
            return result.fail(f"the norm is of order {self._p}", context.root)
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        powers = op.Mul(x, x) if self._p == 2 else op.Abs(x)
        sums = window_sums(op, powers, x, self._along, 1.0)
        return op.Sqrt(sums) if self._p == 2 else sums
