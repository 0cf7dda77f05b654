"""BiasGelu, which ONNX Runtime's optimiser makes, becomes its two parts again.

x ──► BiasGelu(·, bias) ──► y        x ──► Add(bias) ──► Gelu ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.rule import Rule


class BiasGeluToGelu(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"BiasGelu"})

    def pattern(self, op: Any, x: Any, bias: Any) -> Any:
        return op.BiasGelu(x, bias, _domain="com.microsoft")

    def check(self, context: MatchContext, x: Any, bias: Any) -> MatchResult:  # noqa: ARG002
        return MatchResult()

    def rewrite(self, op: Any, x: Any, bias: Any) -> Any:
        return op.Gelu(op.Add(x, bias), _domain="com.microsoft")
