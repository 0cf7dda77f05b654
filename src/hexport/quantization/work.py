"""How much work a node is: multiply-accumulates and numbers moved, the measure of what a precision costs."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from hexport.model.graph import Node, TensorType
from hexport.model.macs import macs
from hexport.quantization.plan import Precision
from hexport.rewrite.values import fixed_shape

_MULTIPLY = {8: 1.0, 16: 2.0, 32: 4.0}
"""The HTP's own proportions: 8-bit products at full rate, 16-bit activations at half, fp16 at a quarter."""
_WIDE_WEIGHTS = 2.0
"""Times that for weights of 16 bits: a product of two times two bytes is four of single ones."""
_MOVE = {8: 1.0, 16: 2.0, 32: 2.0}
_MACS_A_BYTE = 64.0
"""Products in the time that one byte takes: what makes the two comparable."""


def node_macs(node: ir.Node) -> int:
    """Its multiply-accumulates; 0 when it does none or its shapes are not known."""
    values = [*node.inputs, *node.outputs]
    types = {str(v.name): TensorType("float32", fixed_shape(v)) for v in values if v is not None}
    plain = Node(
        str(node.name),
        node.op_type,
        node.domain,
        tuple("" if value is None else str(value.name) for value in node.inputs),
        tuple(str(value.name) for value in node.outputs),
        _attributes(node),
    )
    return macs(plain, types) or 0


def all_macs(model: ir.Model) -> dict[str, int]:
    """Every node's, by name."""
    return {str(node.name): node_macs(node) for node in model.graph}


def cost(node: ir.Node, precision: Precision) -> float:
    """What the node costs in this precision, in 8-bit products."""
    bits = 32 if precision.activation is None else precision.activation.bits
    moved = sum(prod(fixed_shape(value) or (0,)) for value in node.outputs)
    wide = _WIDE_WEIGHTS if precision.weight is not None and precision.weight.bits == 16 else 1.0
    return node_macs(node) * _MULTIPLY[bits] * wide + moved * _MOVE[bits] * _MACS_A_BYTE


def _attributes(node: ir.Node) -> dict[str, int | float | bytes | tuple[int, ...]]:
    found: dict[str, int | float | bytes | tuple[int, ...]] = {}
    for name, attribute in node.attributes.items():
        if attribute.type is ir.AttributeType.INT:
            found[name] = attribute.as_int()
        elif attribute.type is ir.AttributeType.STRING:
            found[name] = attribute.as_string().encode()
    return found
