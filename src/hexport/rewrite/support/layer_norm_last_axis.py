"""Layer normalisation over several axes becomes that over one: the backend has it for the last axis.

x [A,B,C] ──► LayerNormalization(axis=1) ──► y

x ──► Reshape [A,B·C] ──► LayerNormalization ──► Reshape ──► y

A scale that ONNX would broadcast is written out too: the backend wants one number an element.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, reshape
from hexport.rewrite.values import constant, fixed_shape


class LayerNormLastAxis(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"LayerNormalization"})
    op_type: ClassVar[str] = "LayerNormalization"

    def why_not(self) -> str:
        shape = fixed_shape(self.required(0))
        if shape is None:
            return "the input's shape is not fixed"
        normal = shape[self._axis(len(shape)) :]
        factors = self._factors()
        if len(normal) == 1 and all(fixed_shape(factor) == normal for factor in factors):
            return "it is over the last axis, with one number an element"
        if any(constant(factor) is None and fixed_shape(factor) != normal for factor in factors):
            return "the scale or bias is computed and would be broadcast"
        return ""

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        axis = self._axis(len(shape))
        factors = [_flat(op, factor, shape[axis:]) for factor in self._factors()]
        rows = reshape(op, value, (*shape[:axis], prod(shape[axis:])))
        epsilon = self.float_attribute("epsilon", 1e-5)
        normal = getattr(op, self.op_type)(rows, *factors, axis=-1, epsilon=epsilon)
        return reshape(op, normal, shape)

    def _axis(self, rank: int) -> int:
        return self.int_attribute("axis", -1) % rank

    def _factors(self) -> list[ir.Value]:
        return [factor for factor in (self.input(1), self.input(2)) if factor is not None]


class RmsNormLastAxis(LayerNormLastAxis):
    cures: ClassVar[frozenset[str]] = frozenset({"RMSNormalization"})
    op_type: ClassVar[str] = "RMSNormalization"


def _flat(op: Any, factor: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    known = constant(factor)
    if known is None:
        return reshape(op, factor, [prod(shape)])
    # Leading axes of size 1 beyond the normalised ones do not count.
    trimmed = known.reshape(known.shape[max(0, known.ndim - len(shape)) :])
    return array(op, np.broadcast_to(trimmed, shape).reshape(-1))
