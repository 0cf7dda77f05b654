"""ReduceProd, which the HTP refuses, multiplies one half of an axis by the other until one is left.

x ──► ReduceProd(axis of 4) ──► y        x ──┬─► Slice(0, 2) ──► Mul ──┬─► Slice(0, 1) ──► Mul ──► y
                                             └─► Slice(2, 4) ──┘       └─► Slice(1, 2) ──┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import whole_numbers
from hexport.rewrite.reduction import ReductionRule
from hexport.rewrite.values import fixed_shape


class ReduceProdToMul(ReductionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceProd"})
    op_type: ClassVar[str] = "ReduceProd"

    def __init__(self) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = ()

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = super().check(context, x)
        if not result:
            return result
        shape = fixed_shape(x)
        if shape is None:
            return result.fail("the shape is not fixed", x)
        self._shape = shape
        self.axes = tuple(axis % len(shape) for axis in self.axes or range(len(shape)))
        if any(shape[axis] == 0 for axis in self.axes):
            return result.fail("an axis of length 0 has nothing to multiply", x)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        product = x
        for axis in self.axes:
            product = _along(op, product, axis, self._shape[axis])
        if self.keepdims or not self._shape:
            return product if product is not x else op.Identity(x)
        left = [size for axis, size in enumerate(self._shape) if axis not in self.axes]
        return op.Reshape(product, whole_numbers(op, left))


def _along(op: Any, x: ir.Value, axis: int, length: int) -> ir.Value:
    over: list[ir.Value] = []
    while length > 1:
        half = length // 2
        if length % 2:
            over.append(_slice(op, x, axis, length - 1, length))
        x = op.Mul(_slice(op, x, axis, 0, half), _slice(op, x, axis, half, 2 * half))
        length = half
    for rest in over:
        x = op.Mul(x, rest)
    return x


def _slice(op: Any, x: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    first, last, along = (whole_numbers(op, [i]) for i in (start, end, axis))
    result: ir.Value = op.Slice(x, first, last, along)
    return result
