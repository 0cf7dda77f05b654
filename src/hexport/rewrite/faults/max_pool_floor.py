"""MaxPool with ceil_mode that makes no difference: without it, for one such node ends the session.

x ──► MaxPool(ceil_mode=1) ──► y          x ──► MaxPool ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.windows import Walk, walks
from hexport.rewrite.rule import Purpose, Rule


class MaxPoolFloor(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"MaxPool"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.MaxPool(x, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        node = context.root
        if not node.attributes.get_int("ceil_mode", 0):
            return result.fail("ceil_mode is not set", node)
        along = walks(node)
        if isinstance(along, str):
            return result.fail(along, node)
        if any(_floor_steps(walk) != walk.steps for walk in along):
            return result.fail("ceil_mode makes a window more", node)
        self._node = node
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        kept = {
            name: attribute.value for name, attribute in self._node.attributes.items() if name != "ceil_mode"
        }
        return op.MaxPool(x, **kept)


def _floor_steps(walk: Walk) -> int:
    return (walk.begin + walk.size + walk.end - walk.kernel) // walk.stride + 1
