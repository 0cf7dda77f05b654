"""What multiplies and shifts the channels of a layer's result goes into the layer's weights and bias.

x ──► Conv(w, b) ──► Mul(·, s) ──► Add(·, t) ──► y          x ──► Conv(s·w, s·b + t) ──► y

Each step between would be rounded to 8 or 16 bits, with a range of its own. The same for Div and Sub, for
BatchNormalization, and after ConvTranspose, Gemm, and, but for what is added, MatMul.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.integers.affine import Affine, affine_of
from hexport.rewrite.integers.layers import WEIGHTED, Layer, layer_of
from hexport.rewrite.integers.readers import maker, only_for
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose


class AffineIntoLayer(NodeRule):
    """Shared by the operators that do no more than multiply and add."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER
    _layer: Layer
    _affine: Affine

    def concerns(self, node: ir.Node) -> bool:
        return _layer_before(node) is not None

    def why_not(self) -> str:
        before = _layer_before(self.node)
        layer = layer_of(before)
        if before is None or layer is None:
            return "the layer's weights or bias are not constant, or it scales them itself"
        affine = affine_of(self.node, layer.axis)
        if affine is None or affine.value is not before.outputs[0]:
            return "the other operand is not one constant, or one for each channel"
        if not only_for(affine.value, self.node):
            return "the layer's own result is used elsewhere too"
        if np.any(affine.offset) and not layer.takes_offset:
            return "a MatMul has no bias to add to"
        self._layer, self._affine = layer, affine
        return ""

    def replace(self, op: Any) -> Any:
        return self._layer.scaled_after(self._affine.factor, self._affine.offset).build(op, self._layer.value)


class MulIntoLayer(AffineIntoLayer):
    op_type: ClassVar[str] = "Mul"
    cures: ClassVar[frozenset[str]] = frozenset({"Mul"})


class DivIntoLayer(AffineIntoLayer):
    op_type: ClassVar[str] = "Div"
    cures: ClassVar[frozenset[str]] = frozenset({"Div"})


class AddIntoLayer(AffineIntoLayer):
    op_type: ClassVar[str] = "Add"
    cures: ClassVar[frozenset[str]] = frozenset({"Add"})


class SubIntoLayer(AffineIntoLayer):
    op_type: ClassVar[str] = "Sub"
    cures: ClassVar[frozenset[str]] = frozenset({"Sub"})


class BatchNormIntoLayer(AffineIntoLayer):
    op_type: ClassVar[str] = "BatchNormalization"
    cures: ClassVar[frozenset[str]] = frozenset({"BatchNormalization"})


def _layer_before(node: ir.Node) -> ir.Node | None:
    """A node that could hold the weights; which of the operands it makes is told later."""
    for value in node.inputs[:2]:
        if (found := maker(value, *WEIGHTED)) is not None:
            return found
    return None
