"""MatMul of six axes or more becomes one of fewer, which is all the HTP addresses.

a [p,q,r,s,M,K] ──► MatMul ──► y          a ──► Reshape [p·q·r·s,M,K] ──► MatMul ──► Reshape ──► y
b [p,q,r,s,K,N] ──────┘                   b ──► Reshape [p·q·r·s,K,N] ──────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape
from hexport.rewrite.support.low_rank import MOST_AXES, has_many_axes, merged_broadcast
from hexport.rewrite.values import fixed_shape


class MatMulLowRank(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"MatMul"})
    op_type: ClassVar[str] = "MatMul"

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        shapes = [fixed_shape(value) for value in self.node.inputs]
        if any(shape is None or 0 in shape for shape in shapes):
            return "an input's shape is not fixed, or has no elements"
        if min(len(shape or ()) for shape in shapes) < 2:
            return "an input is a vector"
        left = len(merged_broadcast([(shape or ())[:-2] for shape in shapes])[0])
        return "" if left + 2 <= MOST_AXES else f"{left + 2} axes are left after merging"

    def replace(self, op: Any) -> Any:
        operands = [self.required(0), self.required(1)]
        shapes = [fixed_shape(value) or () for value in operands]
        batches = [shape[:-2] for shape in shapes]
        few = [
            reshape(op, value, (*batch, *shape[-2:]))
            for value, batch, shape in zip(operands, merged_broadcast(batches), shapes, strict=True)
        ]
        size = np.broadcast_shapes(*batches)
        return reshape(op, op.MatMul(*few), (*size, shapes[0][-2], shapes[1][-1]))
