"""What the rules for reductions share: axes and keepdims, read and written as each opset wants them."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import whole_numbers
from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import constant

_AXES_BECAME_AN_INPUT = {"ReduceSum": 13}
_AXES_BECAME_AN_INPUT_ELSE = 18


class ReductionRule(Rule):
    """``op_type(x, axes)``; a subclass builds the replacement with :meth:`reduce`."""

    op_type: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.axes: tuple[int, ...] = ()
        """None stand for all of them."""
        self.keepdims = True
        self.opset = 0

    def pattern(self, op: Any, x: Any) -> Any:
        return getattr(op, self.op_type)(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if x.dtype is None:
            return result.fail("the element type is not known", x)
        node = context.root
        given = node.inputs[1] if len(node.inputs) > 1 else None
        found = constant(given)
        if given is not None and found is None:
            return result.fail("the axes are not constant", given)
        attribute = node.attributes.get("axes")
        axes = found.reshape(-1).tolist() if found is not None else attribute.as_ints() if attribute else ()
        self.axes = tuple(int(axis) for axis in axes)
        if not self.axes and _int(node, "noop_with_empty_axes", 0):
            return result.fail("noop_with_empty_axes without axes reduces nothing", node)
        self.keepdims = bool(_int(node, "keepdims", 1))
        self.opset = opset_version(context)
        return result

    def reduce(self, op: Any, op_type: str, x: ir.Value, *, keepdims: bool | None = None) -> ir.Value:
        """The same axes, by another operator; ``keepdims`` as in the node being replaced unless given."""
        kept = int(self.keepdims if keepdims is None else keepdims)
        return reduced(op, op_type, x, self.axes, kept, self.opset)


def reduced(op: Any, op_type: str, x: ir.Value, axes: tuple[int, ...], keepdims: int, opset: int) -> ir.Value:
    """A reduction, with its axes where the opset has them."""
    build = getattr(op, op_type)
    result: ir.Value
    if not axes:
        result = build(x, keepdims=keepdims)
    elif opset >= _AXES_BECAME_AN_INPUT.get(op_type, _AXES_BECAME_AN_INPUT_ELSE):
        result = build(x, whole_numbers(op, axes), keepdims=keepdims)
    else:
        result = build(x, axes=axes, keepdims=keepdims)
    return result


def _int(node: ir.Node, name: str, default: int) -> int:
    found = node.attributes.get(name)
    return default if found is None else found.as_int()
