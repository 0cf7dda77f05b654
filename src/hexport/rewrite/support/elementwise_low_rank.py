"""An elementwise operator on six axes or more is computed on fewer, which is all the HTP addresses.

x [a,b,c,d,e,f] ──► Add ──► y          x ──► Reshape [a·b,c·d·e·f] ──► Add ──► Reshape ──► y
z [a,b,1,1,1,1] ─────┘                 z ──► Reshape [a·b,1] ───────────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, reshape
from hexport.rewrite.support.low_rank import MOST_AXES, has_many_axes, merged_broadcast
from hexport.rewrite.values import constant, fixed_shape

# Only the first input of these has axes; the others are parameters.
_ONE = (
    *("Abs", "Cast", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid"),
    *("Sign", "Sin", "Softplus", "Sqrt", "Tanh"),
)
_SEVERAL = (
    *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max"),
    *("Min", "Mul", "Or", "Pow", "Sub", "Where"),
)


class ElementwiseLowRank(NodeRule):
    operands: ClassVar[int | None] = None
    """How many inputs have axes: all, or the first only."""

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        shapes = [fixed_shape(value) for value in self._operands()]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or any(0 in shape for shape in known):
            return "an input's shape is not fixed, or has no elements"
        left = len(merged_broadcast(known)[0])
        return "" if left <= MOST_AXES else f"{left} axes are left after merging"

    def replace(self, op: Any) -> Any:
        operands = self._operands()
        shapes = [fixed_shape(value) or () for value in operands]
        few = [
            _reshaped(op, value, shape)
            for value, shape in zip(operands, merged_broadcast(shapes), strict=True)
        ]
        inputs = [*few, *self.node.inputs[len(few) :]]
        result = getattr(op, self.op_type)(*inputs, **self.node.attributes)
        rank = max(map(len, shapes))
        full = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        return reshape(op, result, [max(sizes) for sizes in zip(*full, strict=True)])

    def _operands(self) -> list[ir.Value]:
        return [value for value in self.node.inputs[: self.operands] if value is not None]


def _reshaped(op: Any, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    known = constant(value)
    return reshape(op, value, shape) if known is None else array(op, known.reshape(shape))


def _made(op_type: str, operands: int | None) -> type[ElementwiseLowRank]:
    content = {
        "op_type": op_type,
        "operands": operands,
        "cures": frozenset({op_type}),
        "__doc__": f"{op_type} on six axes or more.",
        "__module__": __name__,
    }
    return type(f"{op_type}LowRank", (ElementwiseLowRank,), content)


ELEMENTWISE_LOW_RANK: tuple[type[ElementwiseLowRank], ...] = (
    *(_made(op_type, 1) for op_type in _ONE),
    *(_made(op_type, None) for op_type in _SEVERAL),
)
"""One rule an operator: rules are chosen by the operators that the backend refused."""
