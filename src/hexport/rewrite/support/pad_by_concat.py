"""Pad with a constant, in the forms the backend refuses: whole numbers, bool, a computed value, axes.

x ──► Pad(axes) ──► y                  x ──► Pad over every axis ──► y          (float, constant value)
x ──► Pad ──► y                        fill ──► Concat ──► y                    (all other, an axis at a time)
value ─┘                               x ─────────┤
                                       fill ──────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, cut, filled
from hexport.rewrite.support.padding import pads_of
from hexport.rewrite.values import constant, fixed_shape, is_float


class PadByConcat(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Pad"})
    op_type: ClassVar[str] = "Pad"

    def why_not(self) -> str:
        if (mode := self.text_attribute("mode", "constant")) != "constant":
            return f"its mode is {mode}"
        shape = fixed_shape(self.required(0))
        if shape is None or self.required(0).dtype is None:
            return "the input's shape or element type is not known"
        pads = pads_of(self, len(shape))
        if isinstance(pads, str):
            return pads
        if is_float(self.required(0)) and self._value_is_fixed() and self.input(3) is None:
            return "it is a plain Pad of floats"
        if any(size + sum(pair) < 1 for size, pair in zip(shape, pads, strict=True)):
            return "an axis is left with nothing"
        return ""

    def replace(self, op: Any) -> Any:
        value, fill = self.required(0), self.input(2)
        shape = list(fixed_shape(value) or ())
        pads = pads_of(self, len(shape))
        assert not isinstance(pads, str)  # why_not refused it
        if is_float(value) and self._value_is_fixed():
            amounts = [before for before, _ in pads] + [after for _, after in pads]
            inputs = [value, array(op, np.array(amounts, np.int64)), *([] if fill is None else [fill])]
            return op.Pad(*inputs)
        for axis, (before, after) in enumerate(pads):
            if min(before, after) < 0:
                value = cut(op, value, max(-before, 0), shape[axis] + min(after, 0), axis)
                shape[axis] += min(before, 0) + min(after, 0)
            block = [self._block(op, fill, shape, axis, amount) for amount in (before, after)]
            parts = [part for part in (block[0], value, block[1]) if part is not None]
            value = value if len(parts) == 1 else op.Concat(*parts, axis=axis)
            shape[axis] += max(before, 0) + max(after, 0)
        return op.Identity(value) if value is self.required(0) else value

    def _value_is_fixed(self) -> bool:
        return self.input(2) is None or constant(self.input(2)) is not None

    def _block(
        self, op: Any, fill: ir.Value | None, shape: list[int], axis: int, amount: int
    ) -> ir.Value | None:
        if amount <= 0:
            return None
        size = [*shape[:axis], amount, *shape[axis + 1 :]]
        if fill is None:
            return filled(op, 0, self.required(0), size)
        known = constant(fill)
        if known is not None:
            return array(op, np.broadcast_to(known.reshape(()), size))
        made: ir.Value = op.Expand(fill, array(op, np.array(size, np.int64)))
        return made
