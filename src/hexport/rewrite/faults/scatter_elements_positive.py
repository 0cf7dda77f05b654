"""ScatterElements by computed indices: the compiler takes a negative index for 0, so they are made positive.

x, i, u ──► ScatterElements ──► y     i ──► Where(i < 0, i + n, i) ──► ScatterElements(x, ·, u) ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.elements_positive import positive, why_not
from hexport.rewrite.rule import Purpose, Rule


class ScatterElementsPositive(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"ScatterElements"})

    def pattern(self, op: Any, x: Any, indices: Any, updates: Any) -> Any:
        return op.ScatterElements(x, indices, updates, _allow_other_attributes=True, _outputs=["y"])

    def check(
        self,
        context: MatchContext,
        x: ir.Value,
        indices: ir.Value,
        updates: ir.Value,  # noqa: ARG002
        y: ir.Value,  # noqa: ARG002
    ) -> MatchResult:
        self._node = context.root
        return why_not(x, indices, context.root)

    def rewrite(self, op: Any, x: ir.Value, indices: ir.Value, updates: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        axis = self._node.attributes.get_int("axis", 0)
        attributes: dict[str, Any] = {"axis": axis}
        if (reduction := self._node.attributes.get_string("reduction", "none")) != "none":
            attributes["reduction"] = reduction
        return op.ScatterElements(x, positive(op, x, indices, axis), updates, **attributes)
