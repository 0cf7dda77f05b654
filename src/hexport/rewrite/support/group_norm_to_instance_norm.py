"""GroupNormalization becomes InstanceNormalization with a group a channel.

x ──► GroupNormalization ──► y

x ──► Reshape [N,G,·] ──► InstanceNormalization ──► Reshape ──► Mul scale ──► Add bias ──► y

For images the backend has GroupNormalization. For rows it gives wrong numbers, and a volume ends the
whole session, so these are replaced always; opset 18's form, one scale a group, it does not take.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, filled, reshape
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import fixed_shape, is_float

_IMAGE_RANK = 4


class GroupNormPerGroup(NodeRule):
    """One scale a group, as opset 18 had it."""

    cures: ClassVar[frozenset[str]] = frozenset({"GroupNormalization"})
    op_type: ClassVar[str] = "GroupNormalization"

    def why_not(self) -> str:
        value = self.required(0)
        shape, scale = fixed_shape(value), fixed_shape(self.required(1))
        if shape is None or scale is None:
            return "the shape of the input or of the scale is not fixed"
        if not is_float(value):
            return "it is not known to be float"
        return self.why_not_shapes(shape, scale)

    def why_not_shapes(self, shape: tuple[int, ...], scale: tuple[int, ...]) -> str:
        return "it has a scale for every channel" if scale[0] == shape[1] else ""

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        groups = self.int_attribute("num_groups", 1)
        epsilon = self.float_attribute("epsilon", 1e-5)
        rows = reshape(op, value, (shape[0], groups, -1))
        one, zero = filled(op, 1, value, (groups,)), filled(op, 0, value, (groups,))
        normal = reshape(op, op.InstanceNormalization(rows, one, zero, epsilon=epsilon), shape)
        scaled = op.Mul(normal, self._per_channel(op, self.required(1), shape, groups))
        return op.Add(scaled, self._per_channel(op, self.required(2), shape, groups))

    def _per_channel(self, op: Any, value: ir.Value, shape: tuple[int, ...], groups: int) -> ir.Value:
        channels = shape[1]
        if (fixed_shape(value) or ())[0] != channels:
            member = np.arange(channels, dtype=np.int64) // (channels // groups)
            value = op.Gather(value, array(op, member), axis=0)
        return reshape(op, value, (1, channels, *[1] * (len(shape) - 2)))


class GroupNormOutsideImages(GroupNormPerGroup):
    purpose: ClassVar[Purpose] = Purpose.FAULT

    def why_not_shapes(self, shape: tuple[int, ...], scale: tuple[int, ...]) -> str:  # noqa: ARG002
        return "it is of an image" if len(shape) == _IMAGE_RANK else ""
