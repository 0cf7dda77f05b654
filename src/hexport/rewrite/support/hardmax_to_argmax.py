"""Hardmax becomes the comparison of each place with the place of the first maximum.

x ──► Hardmax(axis) ──► y        x ──► ArgMax(axis) ──► Equal(0, 1, 2, …) ──► Cast ──► y

Before opset 13 it works on a matrix of all dims before the axis by all dims from it on.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import whole_numbers
from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import fixed_shape, is_float

_FIRST_OPSET_WITH_ONE_AXIS = 13


class HardmaxToArgmax(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"Hardmax"})

    def __init__(self) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = ()
        self._axis = 0
        self._flattens = False

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Hardmax(x, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        shape = fixed_shape(x)
        if shape is None or not is_float(x):
            return result.fail("the shape or the element type is not known", x)
        old = opset_version(context) < _FIRST_OPSET_WITH_ONE_AXIS
        given = context.root.attributes.get("axis")
        self._shape = shape
        self._axis = (given.as_int() if given is not None else (1 if old else -1)) % len(shape)
        self._flattens = old and self._axis != len(shape) - 1
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        if not self._flattens:
            return _marked(op, x, self._shape, self._axis, x)
        rows, columns = math.prod(self._shape[: self._axis]), math.prod(self._shape[self._axis :])
        matrix = op.Reshape(x, whole_numbers(op, (rows, columns)))
        marked = _marked(op, matrix, (rows, columns), 1, x)
        return op.Reshape(marked, whole_numbers(op, self._shape))


def _marked(op: Any, x: ir.Value, shape: tuple[int, ...], axis: int, like: ir.Value) -> ir.Value:
    where = op.ArgMax(x, axis=axis, keepdims=1)
    places = whole_numbers(op, range(shape[axis]))
    along = op.Reshape(places, whole_numbers(op, [-1 if i == axis else 1 for i in range(len(shape))]))
    result: ir.Value = op.Cast(op.Equal(where, along), to=like.dtype)
    return result
