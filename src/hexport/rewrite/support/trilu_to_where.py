"""Trilu becomes a choice by a constant triangle, which the backend has; it has no Trilu.

x ──► Trilu(k) ──► y          triangle ──► Where ──► y          (for bool: And with the triangle)
                              x ─────────────┤
                              0 ─────────────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, filled
from hexport.rewrite.values import fixed_shape, scalar


class TriluToWhere(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Trilu"})
    op_type: ClassVar[str] = "Trilu"

    def why_not(self) -> str:
        value = self.required(0)
        if value.dtype is None:
            return "the input's element type is not known"
        if fixed_shape(value) is None:
            return "the input's shape is not fixed"
        if self.input(1) is not None and scalar(self.input(1)) is None:
            return "k is not constant"
        return ""

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        k = int(scalar(self.input(1)) or 0)
        triangle = np.triu if self.int_attribute("upper", 1) else np.tril
        mask = array(op, triangle(np.ones(shape[-2:], np.bool_), k))
        if value.dtype == ir.DataType.BOOL:
            return op.And(value, mask)
        # Not Mul: what is cut off may be infinite.
        return op.Where(mask, value, filled(op, 0, value))
