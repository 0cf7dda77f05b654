"""MeanVarianceNormalization becomes two means, of deviations scaled to at most 1 so that fp16 holds squares.

x ──► MeanVarianceNormalization(axes) ──► y        d = x − mean(x);  e = d / max|d|;  y = e / √mean(e²)

ONNX's own expansion takes mean(x²) − mean(x)², which has no digits left in fp16 when the mean is large.
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

_DEFAULT_AXES = (0, 2, 3)
_SMALLEST = 2.0**-13
"""A divisor whose reciprocal fp16 can hold."""


class MeanVarianceToMean(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"MeanVarianceNormalization"})

    def __init__(self) -> None:
        super().__init__()
        self._axes: tuple[int, ...] = ()
        self._opset = 0

    def pattern(self, op: Any, x: Any) -> Any:
        return op.MeanVarianceNormalization(x, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if not is_float(x):
            return result.fail("the element type is not float32 or float16", x)
        given = context.root.attributes.get("axes")
        self._axes = tuple(given.as_ints()) if given is not None else _DEFAULT_AXES
        self._opset = opset_version(context)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        do = Arithmetic(op, x)
        deviation = do("Sub", x, self._reduced(op, "ReduceMean", x))
        # Where all are equal, 0 is divided by these smallest numbers and stays 0.
        highest = do("Max", self._reduced(op, "ReduceMax", do("Abs", deviation)), _SMALLEST)
        part = do("Div", deviation, highest)
        variance = self._reduced(op, "ReduceMean", do("Mul", part, part))
        return do("Div", part, do("Max", do("Sqrt", variance), _SMALLEST))

    def _reduced(self, op: Any, op_type: str, x: ir.Value) -> ir.Value:
        return reduced(op, op_type, x, self._axes, 1, self._opset)
