"""An operator along one axis of six or more is computed on three, which the HTP addresses.

x [a,b,c,d,e,f] ──► Softmax(axis=3) ──► y

x ──► Reshape [a·b·c,d,e·f] ──► Softmax(axis=1) ──► Reshape ──► y

So for Concat, whose inputs are all reshaped, and for Gather with one row of indices.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape
from hexport.rewrite.support.low_rank import MOST_AXES, has_many_axes
from hexport.rewrite.values import fixed_shape

_SOFTMAX_OF_ONE_AXIS = 13


class _AxisLowRank(NodeRule):
    default_axis: ClassVar[int] = -1

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        shapes = [fixed_shape(value) for value in self.operands()]
        if any(shape is None or 0 in shape for shape in shapes):
            return "an input's shape is not fixed, or has no elements"
        rank = len(shapes[0] or ())
        return "" if rank > MOST_AXES else f"it has {rank} axes"

    def replace(self, op: Any) -> Any:
        shapes = [fixed_shape(value) or () for value in self.operands()]
        axis = self.int_attribute("axis", self.default_axis) % len(shapes[0])
        before, after = shapes[0][:axis], shapes[0][axis + 1 :]
        few = [
            reshape(op, value, (prod(before), shape[axis], prod(after)))
            for value, shape in zip(self.operands(), shapes, strict=True)
        ]
        result = getattr(op, self.op_type)(*few, *self.parameters(), axis=1)
        return reshape(op, result, (*before, *self.middle(shapes, axis), *after))

    def operands(self) -> list[ir.Value]:
        return [self.required(0)]

    def parameters(self) -> list[ir.Value]:
        return []

    def middle(self, shapes: list[tuple[int, ...]], axis: int) -> tuple[int, ...]:
        """What stands in the axis' place afterwards."""
        return (sum(shape[axis] for shape in shapes),)


class SoftmaxLowRank(_AxisLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"Softmax"})
    op_type: ClassVar[str] = "Softmax"

    def why_not(self) -> str:
        if self.opset < _SOFTMAX_OF_ONE_AXIS:
            return f"before opset {_SOFTMAX_OF_ONE_AXIS} it is over all axes from the named one"
        return super().why_not()


class ConcatLowRank(_AxisLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"Concat"})
    op_type: ClassVar[str] = "Concat"

    def operands(self) -> list[ir.Value]:
        return [value for value in self.node.inputs if value is not None]


class GatherLowRank(_AxisLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"Gather"})
    op_type: ClassVar[str] = "Gather"
    default_axis: ClassVar[int] = 0

    def why_not(self) -> str:
        indices = fixed_shape(self.required(1))
        if indices is None or len(indices) > 1:
            return "the indices are not one number or one row"
        return super().why_not()

    def parameters(self) -> list[ir.Value]:
        return [self.required(1)]

    def middle(self, shapes: list[tuple[int, ...]], axis: int) -> tuple[int, ...]:  # noqa: ARG002
        return fixed_shape(self.required(1)) or ()
