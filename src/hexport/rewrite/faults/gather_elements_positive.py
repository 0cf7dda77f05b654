"""GatherElements by computed indices: the compiler takes a negative index for 0, so they are made positive.

x, i ──► GatherElements ──► y          i ──► Where(i < 0, i + n, i) ──► GatherElements(x, ·) ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.elements_positive import positive, why_not
from hexport.rewrite.rule import Purpose, Rule


class GatherElementsPositive(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"GatherElements"})

    def pattern(self, op: Any, x: Any, indices: Any) -> Any:
        return op.GatherElements(x, indices, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, indices: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        self._node = context.root
        return why_not(x, indices, context.root)

    def rewrite(self, op: Any, x: ir.Value, indices: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        axis = self._node.attributes.get_int("axis", 0)
        attributes = {"axis": axis}
        return op.GatherElements(x, positive(op, x, indices, axis), **attributes)
