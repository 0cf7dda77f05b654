"""Pad that repeats what is there becomes a Gather an axis.

x ──► Pad(edge | wrap | reflect) ──► y          x ──► Gather(axis 2) ──► Gather(axis 3) ──► y

The compiler takes ``edge`` and returns garbage for it. It refuses ``wrap``, and ``reflect`` for volumes and
for whole numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import take
from hexport.rewrite.rule import Purpose
from hexport.rewrite.support.padding import pads_of
from hexport.rewrite.values import fixed_shape, is_float

_MOST_REFLECTED = 4


class PadByGather(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Pad"})
    op_type: ClassVar[str] = "Pad"
    modes: ClassVar[frozenset[str]] = frozenset({"wrap", "reflect"})

    def why_not(self) -> str:
        if (mode := self.text_attribute("mode", "constant")) not in self.modes:
            return f"its mode is {mode}"
        shape = fixed_shape(self.required(0))
        if shape is None:
            return "the input's shape is not fixed"
        if mode == "reflect" and len(shape) <= _MOST_REFLECTED and is_float(self.required(0)):
            return "it reflects floats, and not a volume"
        pads = pads_of(self, len(shape))
        if isinstance(pads, str):
            return pads
        if any(size + min(before, 0) + min(after, 0) < 1 for size, (before, after) in _padded(shape, pads)):
            return "negative pads leave nothing of an axis"
        return ""

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        pads = pads_of(self, len(shape))
        mode = self.text_attribute("mode", "constant")
        for axis, (size, (before, after)) in enumerate(_padded(shape, pads)):
            if (before, after) != (0, 0):
                # ONNX cuts by the negative pads first, then repeats what is left.
                left = np.arange(size)[max(-before, 0) : size + min(after, 0)]
                order = np.pad(left, (max(before, 0), max(after, 0)), mode=mode)  # type: ignore[call-overload]
                value = take(op, value, order.tolist(), axis)
        return op.Identity(value) if value is self.required(0) else value


class PadEdgeByGather(PadByGather):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    modes: ClassVar[frozenset[str]] = frozenset({"edge"})


def _padded(shape: tuple[int, ...], pads: Any) -> list[tuple[int, tuple[int, int]]]:
    return list(zip(shape, pads, strict=True))
