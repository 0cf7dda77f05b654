"""The search for NaN after a Softmax, which is for rows that are masked everywhere, looks at the row instead.

x ──► Softmax ──► IsNaN ──► y        Max(ReduceMax(x), Min(x, −65504)) ≤ −65000

The HTP has no infinities, so it makes equal shares of a row of −∞ where the CPU makes NaN. PyTorch exports
attention with a boolean mask in this form. The Min only gives the result its full shape.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.faults.infinity import is_minus_infinity
from hexport.rewrite.literals import number
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.precision.fp16 import LARGEST
from hexport.rewrite.reduction import reduced
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float

_FIRST_OPSET_WITH_ONE_AXIS = 13


class SoftmaxIsNaN(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    op_type: ClassVar[str] = "IsNaN"
    cures: ClassVar[frozenset[str]] = frozenset({"IsNaN"})

    def concerns(self, node: ir.Node) -> bool:
        return _softmax(node) is not None

    def why_not(self) -> str:
        softmax = _softmax(self.node)
        if softmax is None or not is_float(softmax.inputs[0]):
            return "the element type is not known to be float"
        return "" if self.opset >= _FIRST_OPSET_WITH_ONE_AXIS else "before opset 13 it has several axes"

    def replace(self, op: Any) -> Any:
        softmax = _softmax(self.node)
        assert softmax is not None
        x = softmax.inputs[0]
        assert x is not None
        axis = softmax.attributes.get_int("axis", -1)
        largest = reduced(op, "ReduceMax", x, (axis,), 1, self.opset)
        full = op.Max(largest, op.Min(x, number(op, -LARGEST, x)))
        full.dtype = x.dtype
        return is_minus_infinity(op, full)


def _softmax(node: ir.Node) -> ir.Node | None:
    """The Softmax that the node looks at."""
    source = node.inputs[0]
    producer = source.producer() if source is not None else None
    return producer if producer is not None and producer.op_type == "Softmax" else None
