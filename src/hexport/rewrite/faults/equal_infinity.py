"""A comparison with an infinity, by which attention finds rows masked everywhere, becomes a threshold.

x, −∞ ──► Equal ──► y        Max(x, −65504) ≤ −65000

The HTP says no to Equal(ReduceMax(mask), −∞): the one side is −65504 and the other −65536.
"""

from __future__ import annotations

from math import isinf
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.faults.infinity import is_minus_infinity, is_plus_infinity
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar

_FIRST_OPSET_WITH_LESS_OR_EQUAL = 12


class EqualInfinity(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    op_type: ClassVar[str] = "Equal"
    cures: ClassVar[frozenset[str]] = frozenset({"Equal"})

    def why_not(self) -> str:
        value, infinity = self._sides()
        if not is_float(value):
            return "the element type is not float"
        if infinity is None:
            return "neither side is a constant infinity"
        constant = self.required(1) if value is self.input(0) else self.required(0)
        if value.shape is None or constant.shape is None or constant.shape.rank() > value.shape.rank():
            return "the infinity has more axes than what it is compared with"
        return "" if self.opset >= _FIRST_OPSET_WITH_LESS_OR_EQUAL else "the opset has no LessOrEqual"

    def replace(self, op: Any) -> Any:
        value, infinity = self._sides()
        assert infinity is not None
        return is_minus_infinity(op, value) if infinity < 0 else is_plus_infinity(op, value)

    def _sides(self) -> tuple[ir.Value, float | None]:
        """What is compared, and the infinity it is compared with."""
        for value, other in ((0, 1), (1, 0)):
            number = scalar(self.input(other))
            if number is not None and isinf(number):
                return self.required(value), number
        return self.required(0), None
