"""A product with a constant matrix and the addition of a constant row become one Gemm.

x ──► MatMul(·, w) ──► Add(·, b) ──► y          x ──► Reshape ──► Gemm(·, w, b) ──► Reshape ──► y

Gemm adds the row in 32 bits before it rounds, once; with 8-bit activations that is worth 2 dB.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.integers.affine import affine_of
from hexport.rewrite.integers.layers import Layer, layer_of
from hexport.rewrite.integers.readers import maker, only_for
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, numpy_type, reshape
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import fixed_shape


class MatMulAddToGemm(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"MatMul"})
    op_type: ClassVar[str] = "Add"
    _layer: Layer

    def concerns(self, node: ir.Node) -> bool:
        return _product(node) is not None

    def why_not(self) -> str:
        product = _product(self.node)
        layer = layer_of(product)
        if product is None or layer is None or fixed_shape(layer.value) is None:
            return "the second factor is not a constant matrix, or the input's shape is not known"
        if affine_of(self.node, -1) is None:
            return "what is added is not one constant, or one for each column"
        if not only_for(product.outputs[0], self.node):
            return "the product itself is used elsewhere too"
        self._layer = layer
        return ""

    def replace(self, op: Any) -> Any:
        layer, affine = self._layer, affine_of(self.node, -1)
        assert affine is not None  # why_not has asked
        value, dtype = layer.value, numpy_type(layer.value)
        bias = np.broadcast_to(affine.offset, (layer.outputs,)).astype(dtype)
        shape = fixed_shape(value) or ()
        rows = value if len(shape) == 2 else reshape(op, value, [prod(shape[:-1]), shape[-1]])
        made = op.Gemm(rows, array(op, layer.weight.astype(dtype)), array(op, bias))
        return made if len(shape) == 2 else reshape(op, made, [*shape[:-1], layer.outputs])


def _product(node: ir.Node) -> ir.Node | None:
    return maker(node.inputs[0], "MatMul") or maker(node.inputs[1], "MatMul")
