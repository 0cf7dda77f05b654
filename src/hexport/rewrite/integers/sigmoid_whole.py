"""A Sigmoid that was written out becomes Sigmoid again.

x ──┬─► Min(·, 0) ──► Exp ─────────────────────► Div ──► y          x ──► Sigmoid ──► y
    └─► Abs ──► Neg ──► Exp ──► Add(·, 1) ────────┘

`prepare` writes it so for fp16, and some exporters as 1 / (1 + exp(−x)). In integers Sigmoid is one step,
and the range of its result is known.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar


class SigmoidWhole(NodeRule):
    """Shared by the two operators that may be last."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Exp"})

    def concerns(self, node: ir.Node) -> bool:
        return _argument(node) is not None

    def why_not(self) -> str:
        value = _argument(self.node)
        if not is_float(value):
            return "the element type is not float32 or float16"
        if value is None or value.shape is None or value.shape != self.node.outputs[0].shape:
            return "a constant gives the result another shape, or it is not known"
        return ""

    def replace(self, op: Any) -> Any:
        return op.Sigmoid(_argument(self.node))


class SigmoidFromDiv(SigmoidWhole):
    op_type: ClassVar[str] = "Div"


class SigmoidFromReciprocal(SigmoidWhole):
    op_type: ClassVar[str] = "Reciprocal"


def _argument(node: ir.Node) -> ir.Value | None:
    """The x of which the node gives the Sigmoid."""
    if node.op_type == "Reciprocal":
        return _plain(node.inputs[0])
    above, below = node.inputs
    if scalar(above) == 1:
        return _plain(below)
    top = maker(above, "Exp")
    least = maker(top.inputs[0], "Min") if top is not None else None
    size = maker(_negated(_one_more_than_exp(below)), "Abs")
    x = size.inputs[0] if size is not None else None
    for one, other in (
        (least.inputs, least.inputs[::-1]) if least is not None and len(least.inputs) == 2 else ()
    ):
        if x is not None and one is x and scalar(other) == 0:
            return x
    return None


def _plain(value: ir.Value | None) -> ir.Value | None:
    """The x of 1 + exp(−x)."""
    return _negated(_one_more_than_exp(value))


def _negated(value: ir.Value | None) -> ir.Value | None:
    if (node := maker(value, "Neg")) is not None:
        return node.inputs[0]
    node = maker(value, "Mul")
    for one, other in (node.inputs, node.inputs[::-1]) if node is not None else ():
        if scalar(other) == -1:
            return one
    return None


def _one_more_than_exp(value: ir.Value | None) -> ir.Value | None:
    """The exponent, if the value is exp of it plus 1."""
    node = maker(value, "Add")
    for one, other in (node.inputs, node.inputs[::-1]) if node is not None else ():
        exp = maker(one, "Exp")
        if exp is not None and scalar(other) == 1:
            return exp.inputs[0]
    return None
