"""A rule for one node that may have any number of outputs, used or not, which a pattern cannot say."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule


class AnyOutputs(Rule):
    """The pattern has the first output; the uses of the others are handed over when the node is replaced.

    The engine does not remove the node itself, for it would see that the others are in use: the node goes
    with all that is unused.
    """

    op_type: ClassVar[str]
    node: ir.Node
    opset: int

    def __init__(self) -> None:
        super().__init__()
        self.remove_nodes = False

    def pattern(self, op: Any) -> Any:
        node = getattr(op, self.op_type)
        return node(_allow_other_inputs=True, _allow_other_attributes=True, _outputs=["first"])

    def check(self, context: MatchContext, first: ir.Value) -> MatchResult:  # noqa: ARG002
        self.node, self.opset = context.root, opset_version(context)
        reason = self.why_not()
        return MatchResult().fail(reason, self.node) if reason else MatchResult()

    def rewrite(self, op: Any, first: ir.Value) -> Any:  # noqa: ARG002
        values = self.replace(op)
        for old, new in zip(self.node.outputs[1:], values[1:], strict=False):
            new.name, new.type, new.shape = old.name or new.name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        # The engine goes on into the bodies of a Loop or Scan, though it is dead now.
        self.node.attributes.clear()
        return values[0]

    @abstractmethod
    def why_not(self) -> str:
        """Why this node is left as it is; empty when the rule applies."""

    @abstractmethod
    def replace(self, op: Any) -> Sequence[ir.Value]:
        """New values for all the outputs that the operator can have, each made by a node of its own."""

    def input(self, index: int) -> ir.Value | None:
        """An input, or None where the node leaves it out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None
