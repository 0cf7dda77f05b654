"""The remainder of whole numbers becomes a whole division and what it leaves.

x, y ──► Mod ──► z        r = x − (x / y)·y, for fmod = 0 then Where(r has the other sign than y, r + y, r)

The HTP computes Mod in fp16: numbers beyond 2048 get wrong remainders without a word. fmod = 1 it refuses.
Its division of whole numbers is exact to 32 bits.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.rule import Purpose, Rule

_SIGNED = (ir.DataType.INT32, ir.DataType.INT64)


class IntegerModToDiv(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"Mod"})

    def __init__(self) -> None:
        super().__init__()
        self._truncated = False

    def pattern(self, op: Any, x: Any, y: Any) -> Any:
        return op.Mod(x, y, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if x.dtype not in _SIGNED:
            return result.fail("the element type is not int32 or int64", x)
        fmod = context.root.attributes.get("fmod")
        self._truncated = fmod is not None and fmod.as_int() == 1
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:
        do = Arithmetic(op, x)
        rest = do("Sub", x, do("Mul", do("Div", x, y), y))
        if self._truncated:
            return rest
        signs_differ = do("Xor", do("Less", rest, 0), do("Less", y, 0))
        # A remainder of 0 has no sign to differ.
        wrong = do("And", signs_differ, do("Not", do("Equal", rest, 0)))
        return do("Where", wrong, do("Add", rest, y), rest)
