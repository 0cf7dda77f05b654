"""LpNormalization with p = 1 is spelled out: the backend has p = 2 only.

x ──► LpNormalization(p=1) ──► y          x ──► Abs ──► ReduceSum ──► (0 → 1) ──► Div ──► y
                                          └───────────────────────────────────────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import filled, reduce
from hexport.rewrite.values import is_float


class LpNormalizationL1(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"LpNormalization"})
    op_type: ClassVar[str] = "LpNormalization"

    def why_not(self) -> str:
        if (p := self.int_attribute("p", 2)) != 1:
            return f"p is {p}"
        return "" if is_float(self.required(0)) else "it is not known to be float"

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        norm = reduce(op, "ReduceSum", op.Abs(value), [self.int_attribute("axis", -1)], self.opset)
        # ONNX Runtime leaves a row of zeros as it is; so does dividing it by 1.
        whole = op.Where(op.Equal(norm, filled(op, 0, value)), filled(op, 1, value), norm)
        return op.Div(value, whole)
