"""CumSum that is exclusive or reverse becomes the plain one, which is all the backend has.

x ──► CumSum(exclusive) ──► y          x ──► CumSum ──► Slice [:-1] ──► Concat ──► y
                                                                   0 ─────┘
x ──► CumSum(reverse) ──► y            x ──► flip ──► CumSum ──► flip ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import cut, filled, flip
from hexport.rewrite.values import fixed_shape, scalar


class CumSumPlain(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"CumSum"})
    op_type: ClassVar[str] = "CumSum"

    def why_not(self) -> str:
        if not (self.int_attribute("exclusive", 0) or self.int_attribute("reverse", 0)):
            return "it is plain already"
        if self.required(0).dtype is None:
            return "the input's element type is not known"
        if fixed_shape(self.required(0)) is None:
            return "the input's shape is not fixed"
        return "" if scalar(self.input(1)) is not None else "the axis is not constant"

    def replace(self, op: Any) -> Any:
        value, number = self.required(0), scalar(self.input(1))
        shape = fixed_shape(value) or ()
        axis = int(number or 0) % len(shape)
        reverse = self.int_attribute("reverse", 0)
        total = flip(op, value, axis) if reverse else value
        if not self.int_attribute("exclusive", 0):
            total = op.CumSum(total, self.required(1))
        else:
            # Not CumSum − x: in fp16 the difference of two large sums has lost the small one.
            first = filled(op, 0, value, (*shape[:axis], 1, *shape[axis + 1 :]))
            if shape[axis] == 1:
                return first
            kept = cut(op, total, 0, -1, axis)
            total = op.Concat(first, op.CumSum(kept, self.required(1)), axis=axis)
        return flip(op, total, axis) if reverse else total
