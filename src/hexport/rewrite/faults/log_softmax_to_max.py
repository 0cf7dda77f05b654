"""LogSoftmax becomes its parts, with exponentials for which the HTP's does not wrap around.

x ──► LogSoftmax(axis) ──► y        d = x − max(x);  y = d − log Σ exp(Clip(d, ±88))

On the HTP a number 300 or 1000 below the maximum makes all the others wrong by some fifty. Before opset 13
the sum is over the axis and all after it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.opset import opset_version
from hexport.rewrite.reduction import reduced
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float

_FIRST_OPSET_WITH_ONE_AXIS = 13


class LogSoftmaxToMax(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"LogSoftmax"})

    def __init__(self) -> None:
        super().__init__()
        self._axes: tuple[int, ...] = ()
        self._opset = 0

    def pattern(self, op: Any, x: Any) -> Any:
        return op.LogSoftmax(x, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if not is_float(x) or x.shape is None:
            return result.fail("the rank or the element type is not known", x)
        self._opset = opset_version(context)
        old = self._opset < _FIRST_OPSET_WITH_ONE_AXIS
        given = context.root.attributes.get("axis")
        axis = given.as_int() if given is not None else (1 if old else -1)
        rank = len(x.shape)
        self._axes = tuple(range(axis % rank, rank)) if old else (axis,)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        below = op.Sub(x, reduced(op, "ReduceMax", x, self._axes, 1, self._opset))
        total = reduced(op, "ReduceSum", Arithmetic(op, x).exp(below), self._axes, 1, self._opset)
        return op.Sub(below, op.Log(total))
