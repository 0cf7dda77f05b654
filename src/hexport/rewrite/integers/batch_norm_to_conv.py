"""BatchNormalization that stands alone becomes a convolution with one weight a channel.

x ──► BatchNormalization ──► y          x ──► Conv(1×1, a group a channel) ──► y

The HTP refuses it with 16-bit activations and is far off with 8. A convolution has a scale for each
channel's factor and an int32 for its offset. Outside images and rows it becomes Mul and Add.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hexport.rewrite.integers.affine import affine_of
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, numpy_type
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import fixed_shape, is_float

_RANKS_WITH_CONV = (3, 4)


class BatchNormToConv(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"BatchNormalization"})
    op_type: ClassVar[str] = "BatchNormalization"

    def why_not(self) -> str:
        shape = fixed_shape(self.required(0))
        if shape is None or len(shape) < 2 or not is_float(self.required(0)):
            return "the input's shape is not known, or it is not float"
        if affine_of(self.node, 1) is None:
            return "its parameters are computed, or it is in training mode"
        return ""

    def replace(self, op: Any) -> Any:
        value, affine = self.required(0), affine_of(self.node, 1)
        assert affine is not None  # why_not has asked
        dtype, rank = numpy_type(value), len(fixed_shape(value) or ())
        factor, offset = affine.factor.astype(dtype), affine.offset.astype(dtype)
        if rank in _RANKS_WITH_CONV:
            weight = factor.reshape(-1, *[1] * (rank - 1))
            return op.Conv(value, array(op, weight), array(op, np.asarray(offset)), group=len(factor))
        column = [-1, *[1] * (rank - 2)]
        return op.Add(op.Mul(value, array(op, factor.reshape(column))), array(op, offset.reshape(column)))
