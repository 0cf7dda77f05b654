"""InstanceNormalization of volumes becomes that of rows: the backend has it for ranks 3 and 4.

x [N,C,D,H,W] ──► InstanceNormalization ──► y

x ──► Reshape [N,C,D·H·W] ──► InstanceNormalization ──► Reshape ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape
from hexport.rewrite.values import fixed_shape


class InstanceNormFlat(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"InstanceNormalization"})
    op_type: ClassVar[str] = "InstanceNormalization"

    def why_not(self) -> str:
        shape = fixed_shape(self.required(0))
        if shape is None:
            return "the input's shape is not fixed"
        return "" if len(shape) > 4 else f"its rank is {len(shape)}"

    def replace(self, op: Any) -> Any:
        shape = fixed_shape(self.required(0)) or ()
        flat = reshape(op, self.required(0), (*shape[:2], -1))
        epsilon = self.float_attribute("epsilon", 1e-5)
        normal = op.InstanceNormalization(flat, self.required(1), self.required(2), epsilon=epsilon)
        return reshape(op, normal, shape)
