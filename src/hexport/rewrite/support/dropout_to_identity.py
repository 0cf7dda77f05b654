"""Dropout does nothing at inference; ONNX Runtime removes it except at the end of a graph.

x ──► Dropout(ratio) ──► y        x ──► Identity ──► y

One whose mask is used has a second output, which the engine does not let a match lose.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.rule import Rule
from hexport.rewrite.values import scalar


class DropoutToIdentity(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"Dropout"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Dropout(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        node = context.root
        training = node.inputs[2] if len(node.inputs) > 2 else None
        if training is not None and scalar(training) != 0:
            return result.fail("training_mode is not the constant false", training)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return op.Identity(x)
