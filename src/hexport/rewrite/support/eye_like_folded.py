"""EyeLike of a fixed shape is a constant. (Size, NonZero and Range of constants: constant folding.)

x ──► EyeLike ──► y          eye ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array
from hexport.rewrite.values import fixed_shape


class EyeLikeFolded(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"EyeLike"})
    op_type: ClassVar[str] = "EyeLike"

    def why_not(self) -> str:
        if fixed_shape(self.required(0)) is None:
            return "the input's shape is not fixed"
        return "" if self._dtype() is not None else "the element type is not known"

    def replace(self, op: Any) -> Any:
        rows, columns = fixed_shape(self.required(0)) or (0, 0)
        dtype = self._dtype() or ir.DataType.FLOAT
        return array(op, np.eye(rows, columns, self.int_attribute("k", 0)).astype(dtype.numpy()))

    def _dtype(self) -> ir.DataType | None:
        if "dtype" in self.node.attributes:
            return ir.DataType(self.int_attribute("dtype", 1))
        return self.required(0).dtype
