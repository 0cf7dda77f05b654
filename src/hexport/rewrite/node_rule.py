"""A rule for one node, whatever inputs and attributes it has: most structural rules are such."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule

MICROSOFT = "com.microsoft"


class NodeRule(Rule):
    """``why_not`` looks at the node and says what keeps the rule from it; ``replace`` builds anew.

    A rule object serves one match at a time, so the node and the opset are kept between the two.
    """

    op_type: ClassVar[str]
    domain: ClassVar[str] = ""
    outputs: ClassVar[int] = 1
    """How many outputs are replaced. A node with more of them matches only while the rest is unused."""

    node: ir.Node
    opset: int

    def pattern(self, op: Any) -> Any:
        return getattr(op, self.op_type)(
            _domain=self.domain,
            _allow_other_inputs=True,
            _allow_other_attributes=True,
            _outputs=[f"out{i}" for i in range(self.outputs)],
            _check=lambda _context, node: self.concerns(node),
        )

    def check(self, context: MatchContext, *_: Any, **outputs: Any) -> MatchResult:  # type: ignore[override]  # noqa: ARG002
        self.node, self.opset = context.root, opset_version(context)
        reason = self.why_not()
        return MatchResult().fail(reason, self.node) if reason else MatchResult()

    def rewrite(self, op: Any, **outputs: ir.Value) -> Any:  # noqa: ARG002
        return self.replace(op)

    def concerns(self, node: ir.Node) -> bool:  # noqa: ARG002
        """Whether the rule has anything to say about the node; if not, it is not even a miss."""
        return True

    @abstractmethod
    def why_not(self) -> str:
        """Why this node is left as it is; empty when the rule applies."""

    @abstractmethod
    def replace(self, op: Any) -> Any:
        """The values that take the place of the node's outputs."""

    def input(self, index: int) -> ir.Value | None:
        """An input, or None where the node leaves it out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def required(self, index: int) -> ir.Value:
        """An input that ONNX does not let the node leave out, or that ``why_not`` has asked for."""
        value = self.input(index)
        if value is None:
            raise ValueError(f"{self.node.op_type} has no input {index}")
        return value

    def int_attribute(self, name: str, default: int) -> int:
        return int(self.node.attributes.get_int(name, default))

    def float_attribute(self, name: str, default: float) -> float:
        return float(self.node.attributes.get_float(name, default))

    def text_attribute(self, name: str, default: str) -> str:
        return str(self.node.attributes.get_string(name, default))
