"""A Softmax that was written out becomes Softmax.

x ──┬──────────────► Sub ──► Exp ──┬──────────────► Div ──► y          x ──► Softmax ──► y
    └─► ReduceMax ────┘            └─► ReduceSum ────┘

Integers have no room for what lies between exp's largest and smallest. The subtraction of the maximum, a
Max with −∞ and a Clip that keeps Exp in range change nothing, and may be there or not.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.integers.along import Along, reduced, spreads_over, unshaped
from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar

_FIRST_OPSET_BY_AXIS = 13
_FAR = 80.0
"""What Clip may keep Exp within, below a maximum of 0: exp(−80) is nothing."""


class SoftmaxWhole(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Exp"})
    op_type: ClassVar[str] = "Div"

    def concerns(self, node: ir.Node) -> bool:
        return _exp_of_quotient(node) is not None

    def why_not(self) -> str:
        if self.opset < _FIRST_OPSET_BY_AXIS:
            return f"Softmax of opset {self.opset} flattens the axes after its own"
        found = _exp_of_quotient(self.node)
        if found is None or not spreads_over(self.node.inputs[1], found):
            return "the sum does not meet what was summed"
        return "" if is_float(found[0]) else "the element type is not float32 or float16"

    def replace(self, op: Any) -> Any:
        found = _exp_of_quotient(self.node)
        assert found is not None  # why_not has asked
        exp, axis = found
        node = maker(exp, "Exp")
        assert node is not None  # _exp_of_quotient has looked
        return op.Softmax(_unshifted(node.inputs[0], axis), axis=axis)


def _exp_of_quotient(node: ir.Node) -> Along | None:
    """What is divided by its own sum, and the axis, if it is an exponential."""
    found = reduced(node.inputs[1], "ReduceSum")
    if found is None or found[0] is not node.inputs[0] or maker(found[0], "Exp") is None:
        return None
    return found


def _unshifted(value: ir.Value | None, axis: int) -> ir.Value | None:
    """The value before its maximum was subtracted and it was clipped, where that is what was done."""
    clip = maker(value, "Clip")
    within = clip.inputs[0] if clip is not None and _is_wide(clip) else value
    difference = maker(within, "Sub")
    if difference is None:
        return value
    x, top = difference.inputs
    bounded = maker(unshaped(top), "Max")
    if bounded is not None:
        top = next((v for v in bounded.inputs if (scalar(v) or 0.0) > -_FAR), None)
    found = reduced(top, "ReduceMax")
    if found is None or found[0] is not x or found[1] != axis:
        return value
    return x if spreads_over(difference.inputs[1], found) else value


def _is_wide(clip: ir.Node) -> bool:
    if len(clip.inputs) != 3:
        return False
    low, high = scalar(clip.inputs[1]), scalar(clip.inputs[2])
    return low is not None and high is not None and low <= -_FAR and high >= 0
