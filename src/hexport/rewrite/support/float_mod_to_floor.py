"""The float remainder, fmod, becomes a division whose whole part is taken away.

x, y ──► Mod(fmod=1) ──► z        r = |x| − floor(|x|/|y|)·|y|, put back into [0, |y|), with the sign of x

Where the quotient is nearly whole, rounding may take one |y| too many or too few: two Wheres correct that.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import is_float


class FloatModToFloor(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"Mod"})

    def pattern(self, op: Any, x: Any, y: Any) -> Any:
        return op.Mod(x, y, fmod=1)

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if not is_float(x):
            return result.fail("the element type is not float32 or float16", x)
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:
        do = Arithmetic(op, x)
        size, step = do("Abs", x), do("Abs", y)
        rest = do("Sub", size, do("Mul", do("Floor", do("Div", size, step)), step))
        rest = do("Where", do("Less", rest, 0.0), do("Add", rest, step), rest)
        rest = do("Where", do("Less", rest, step), rest, do("Sub", rest, step))
        return do("Where", do("Less", x, 0.0), do("Neg", rest), rest)
