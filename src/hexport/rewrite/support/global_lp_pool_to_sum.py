"""GlobalLpPool becomes a sum of powers, of numbers scaled to at most 1 so that fp16 holds them.

x ──► GlobalLpPool(p) ──► y        m = max|x|;  y = m · (Σ (|x|/m)ᵖ)^(1/p)    over the spatial dims
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.opset import opset_version
from hexport.rewrite.reduction import reduced
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import is_float

_SMALLEST = 2.0**-13
"""A divisor whose reciprocal fp16 can hold."""


class GlobalLpPoolToSum(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"GlobalLpPool"})

    def __init__(self) -> None:
        super().__init__()
        self._p = 2
        self._axes: tuple[int, ...] = ()
        self._opset = 0

    def pattern(self, op: Any, x: Any) -> Any:
        return op.GlobalLpPool(x, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if not is_float(x) or x.shape is None:
            return result.fail("the rank or the element type is not known", x)
        given = context.root.attributes.get("p")
        self._p = given.as_int() if given is not None else 2
        if self._p < 1:
            return result.fail(f"p is {self._p}, not 1 or more", context.root)
        self._axes = tuple(range(2, len(x.shape)))
        self._opset = opset_version(context)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        do = Arithmetic(op, x)
        size = do("Abs", x)
        if self._p == 1:
            return reduced(op, "ReduceSum", size, self._axes, 1, self._opset)
        highest = do("Max", reduced(op, "ReduceMax", size, self._axes, 1, self._opset), _SMALLEST)
        part = do("Div", size, highest)
        power = do("Mul", part, part) if self._p == 2 else do("Pow", part, float(self._p))
        total = reduced(op, "ReduceSum", power, self._axes, 1, self._opset)
        root = do("Sqrt", total) if self._p == 2 else do("Pow", total, 1 / self._p)
        return do("Mul", root, highest)
