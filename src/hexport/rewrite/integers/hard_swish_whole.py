"""x·HardSigmoid(x), however it was written out, becomes one HardSwish.

x ──┬─► Add(·, 3) ──► Clip(·, 0, 6) ──┐                       x ──► HardSwish ──► y
    └──────────────────────────────► Mul ──► Div(·, 6) ──► y

In fp16 the short form is the worse one; in integers it saves three roundings.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar

_FIRST_OPSET_WITH_HARD_SWISH = 14
_CLOSE = 1e-4


class HardSwishWhole(NodeRule):
    """Shared by the two operators that may be last."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER

    def concerns(self, node: ir.Node) -> bool:
        return _swished(node) is not None

    def why_not(self) -> str:
        if self.opset < _FIRST_OPSET_WITH_HARD_SWISH:
            return f"opset {self.opset} has no HardSwish"
        value = _swished(self.node)
        if not is_float(value):
            return "the element type is not float32 or float16"
        if value is None or value.shape is None or value.shape != self.node.outputs[0].shape:
            return "a constant gives the result another shape, or it is not known"
        return ""

    def replace(self, op: Any) -> Any:
        return op.HardSwish(_swished(self.node))


class HardSwishFromMul(HardSwishWhole):
    op_type: ClassVar[str] = "Mul"
    cures: ClassVar[frozenset[str]] = frozenset({"HardSigmoid", "Clip"})


class HardSwishFromDiv(HardSwishWhole):
    op_type: ClassVar[str] = "Div"
    cures: ClassVar[frozenset[str]] = frozenset({"Clip"})


def _swished(node: ir.Node) -> ir.Value | None:
    """The x of which the node gives HardSwish; None if it gives anything else."""
    factors: list[ir.Value] = []
    number = _factored(node.outputs[0], factors, depth=3)
    if number is None or len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        height = _gate_height(x, gate)
        if height is not None and math.isclose(height * number, 1, rel_tol=_CLOSE):
            return x
    return None


def _factored(value: ir.Value, factors: list[ir.Value], depth: int) -> float | None:
    """The number before a product, whose other factors are added to the list; None if too long."""
    if (known := scalar(value)) is not None:
        return known
    node = maker(value, "Mul", "Div") if depth else None
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        factors.append(value)
        return 1.0
    divisor = scalar(node.inputs[1]) if node.op_type == "Div" else 1.0
    first = _factored(node.inputs[0], factors, depth - 1) if divisor else None
    if first is None or not divisor:
        # A division by what is computed is a factor as a whole.
        factors.append(value)
        return 1.0
    second = 1.0 if node.op_type == "Div" else _factored(node.inputs[1], factors, depth - 1)
    return None if second is None else first * second / divisor


def _gate_height(x: ir.Value, gate: ir.Value) -> float | None:
    """How high the gate is when open, if it opens with x as HardSwish's does."""
    if (node := maker(gate, "HardSigmoid")) is not None:
        alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
        right = math.isclose(alpha, 1 / 6, rel_tol=_CLOSE) and math.isclose(beta, 0.5, rel_tol=_CLOSE)
        return 1.0 if right and node.inputs[0] is x else None
    node = maker(gate, "Clip")
    if node is None or len(node.inputs) != 3 or (scalar(node.inputs[1]), scalar(node.inputs[2])) != (0, 6):
        return None
    add = maker(node.inputs[0], "Add")
    for one, other in (add.inputs, add.inputs[::-1]) if add is not None else ():
        if one is x and scalar(other) == 3:
            return 6.0
    return None
