"""BatchNormalization becomes Mul and Add, for ranks over 4 and for parameters that are computed.

x ──► BatchNormalization ──► y          x ──► Mul ──► Add ──► y
scale, bias, mean, var ─┘                factor ─┘      │
                                         offset ────────┘

factor = scale / sqrt(var + epsilon), offset = bias − mean · factor; constants where all four are.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, filled, numpy_type, reshape
from hexport.rewrite.values import constant, is_float

_MOST_AXES = 4


class BatchNormToMulAdd(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"BatchNormalization"})
    op_type: ClassVar[str] = "BatchNormalization"

    def why_not(self) -> str:
        value = self.required(0)
        if self.int_attribute("training_mode", 0):
            return "it is in training mode"
        if value.shape is None:
            return "the input's rank is not known"
        if len(value.shape) <= _MOST_AXES and all(constant(v) is not None for v in self.node.inputs[1:]):
            return "its parameters are constant, and it is not of a volume"
        return "" if is_float(value) else "it is not known to be float"

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        rank = len(value.shape or ())
        column = [1, -1, *[1] * (rank - 2)]
        factor, offset = self._folded(op, column) or self._computed(op, column)
        return op.Add(op.Mul(value, factor), offset)

    def _folded(self, op: Any, column: list[int]) -> tuple[ir.Value, ir.Value] | None:
        known = [constant(self.required(i)) for i in range(1, 5)]
        if any(array is None for array in known):
            return None
        scale, bias, mean, variance = (np.asarray(values, np.float64) for values in known)
        factor = scale / np.sqrt(variance + self.float_attribute("epsilon", 1e-5))
        dtype = numpy_type(self.required(0))
        parts = (factor, bias - mean * factor)
        first, second = (array(op, part.astype(dtype).reshape(column)) for part in parts)
        return first, second

    def _computed(self, op: Any, column: list[int]) -> tuple[ir.Value, ir.Value]:
        scale, bias, mean, variance = (self.required(i) for i in range(1, 5))
        epsilon = filled(op, self.float_attribute("epsilon", 1e-5), self.required(0))
        factor = op.Div(scale, op.Sqrt(op.Add(variance, epsilon)))
        offset = op.Sub(bias, op.Mul(mean, factor))
        return reshape(op, factor, column), reshape(op, offset, column)
