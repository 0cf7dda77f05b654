"""Clip with bounds that are computed becomes Max and Min: the backend wants Clip's bounds constant.

x ──► Clip ──► y          x ──► Max ──► Min ──► y
low ────┤                 low ───┘       │
high ───┘                 high ──────────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.values import constant, is_float

_FIRST_WHOLE_NUMBER_MAX = 12


class ClipToMaxMin(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Clip"})
    op_type: ClassVar[str] = "Clip"

    def why_not(self) -> str:
        bounds = [bound for bound in (self.input(1), self.input(2)) if bound is not None]
        if all(constant(bound) is not None for bound in bounds):
            return "its bounds are constant"
        if not is_float(self.required(0)) and self.opset < _FIRST_WHOLE_NUMBER_MAX:
            return f"Max takes only floats before opset {_FIRST_WHOLE_NUMBER_MAX}"
        return ""

    def replace(self, op: Any) -> Any:
        value, low, high = self.required(0), self.input(1), self.input(2)
        if low is not None:
            value = op.Max(value, low)
        # Min comes last, as in Clip itself: with low > high everything becomes high.
        return value if high is None else op.Min(value, high)
