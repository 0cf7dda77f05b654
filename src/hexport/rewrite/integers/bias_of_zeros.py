"""A layer without a bias gets one of zeros: what rounding shifts can only be taken back in a bias.

x ──► Conv(·, w) ──► y          x ──► Conv(·, w, zeros) ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, numpy_type
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import constant


class BiasOfZeros(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER

    def concerns(self, node: ir.Node) -> bool:
        return len(node.inputs) < 3 or node.inputs[2] is None

    def why_not(self) -> str:
        return "the weights are not constant" if constant(self.required(1)) is None else ""

    def replace(self, op: Any) -> Any:
        data, weight = self.required(0), self.required(1)
        zeros = array(op, np.zeros(self._channels(), numpy_type(weight)))
        return getattr(op, self.op_type)(data, weight, zeros, **self.node.attributes)

    def _channels(self) -> int:
        weight = constant(self.required(1))
        assert weight is not None
        shape = weight.shape
        if self.op_type == "ConvTranspose":
            return int(shape[1]) * self.int_attribute("group", 1)
        return int(shape[1 if self.op_type == "Gemm" and not self.int_attribute("transB", 0) else 0])


class BiasOfZerosForConv(BiasOfZeros):
    op_type: ClassVar[str] = "Conv"
    cures: ClassVar[frozenset[str]] = frozenset({"Conv"})


class BiasOfZerosForConvTranspose(BiasOfZeros):
    op_type: ClassVar[str] = "ConvTranspose"
    cures: ClassVar[frozenset[str]] = frozenset({"ConvTranspose"})


class BiasOfZerosForGemm(BiasOfZeros):
    op_type: ClassVar[str] = "Gemm"
    cures: ClassVar[frozenset[str]] = frozenset({"Gemm"})
