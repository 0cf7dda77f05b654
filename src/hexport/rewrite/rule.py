"""What a rule is: an onnxscript rewrite rule that also says what it is for."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from onnxscript.rewriter import MatchContext, MatchResult, RewriteRule, RewriteRuleClassBase


class Purpose(Enum):
    """Why a rule exists, which decides when it is applied."""

    SUPPORT = "support"
    """The backend refuses the operator or form: applied where the backend left a node to the CPU."""
    RANGE = "range"
    """fp16 cannot hold what the form computes on the way: applied for float schemes, by measured ranges."""
    FAULT = "fault"
    """The compiler takes the form and computes it wrongly, or dies of it: applied always."""
    INTEGER = "integer"
    """Integers carry the form badly: applied before quantising."""


class Rule(RewriteRuleClassBase):
    """A rewrite rule. Its module's docstring draws before → after.

    ``check`` returns a :class:`MatchResult`, and when it does not apply ``fail`` with the reason and the
    node, so that the nearest miss can be reported. ``rewrite`` builds the replacement with ``op``.
    """

    purpose: ClassVar[Purpose] = Purpose.SUPPORT
    cures: ClassVar[frozenset[str]] = frozenset()
    """Operator types that this rule removes; rules are chosen by the operators the backend refused."""

    def __init__(self) -> None:
        super().__init__(type(self).__name__)
        self.applied_to: list[str] = []
        """Names of the nodes replaced so far: the last node of each match."""
        self.missed: list[tuple[str, str]] = []
        """Nodes whose form matched but whose check failed, with the reason."""

    def bound(self) -> RewriteRule:
        """This very instance for onnxscript's engine, with matches and misses recorded."""
        root: list[str] = []

        def check(context: MatchContext, **bindings: Any) -> MatchResult:
            result: MatchResult = self.check(context, **bindings)
            name = context.root.name or context.root.op_type
            if result:
                root[:] = [name]
            else:
                self.missed.append((name, result.reason or "the check failed"))
            return result

        def rewrite(op: Any, **bindings: Any) -> Any:
            replacement = self.rewrite(op, **bindings)  # type: ignore[no-untyped-call]  # onnxscript has no types
            if replacement is not None:
                self.applied_to += root
            return replacement

        return RewriteRule(
            self.pattern,
            rewrite,
            check,
            name=self.name,
            remove_nodes=self.remove_nodes,
            graph_pre_visitor=self.setup,
            graph_post_visitor=self.cleanup,
        )
