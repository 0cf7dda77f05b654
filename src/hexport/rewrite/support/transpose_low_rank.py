"""Transpose of six axes or more becomes one or a few of at most five, which is all the HTP addresses.

x [a,b,c,d,e,f] ──► Transpose ──► y          x ──► Reshape [a,b,c·d,e,f] ──► Transpose ──► Reshape ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape, transpose
from hexport.rewrite.support.low_rank import has_many_axes, transpose_steps
from hexport.rewrite.values import fixed_shape


class TransposeLowRank(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Transpose"})
    op_type: ClassVar[str] = "Transpose"

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        shape = fixed_shape(self.required(0))
        if shape is None:
            return "the input's shape is not fixed"
        return "it has no elements" if 0 in shape else ""

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        perm = self.node.attributes.get_ints("perm", list(reversed(range(len(shape)))))
        for few, order in transpose_steps(shape, perm):
            value = transpose(op, reshape(op, value, few), order)
        return reshape(op, value, [shape[axis] for axis in perm])
