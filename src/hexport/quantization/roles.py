"""What each input of an operator is to a quantiser: data, weights, a bias, or nothing to encode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import onnx_ir as ir

from hexport import facts
from hexport.rewrite.values import constant, fixed_shape

ONNX_DOMAINS = ("", "ai.onnx")


class Role(Enum):
    """Of one input."""

    DATA = "data"
    WEIGHT = "weight"
    BIAS = "bias"
    GAIN = "gain"
    """The constant factor of a normalisation."""
    RIGHT = "right"
    """The second factor of a product of two activations."""
    PARAMETER = "parameter"
    """Indices, shapes, bounds: stays as it is."""


@dataclass(frozen=True)
class Weight:
    """Where a node's weights are and which of their axes counts the output channels."""

    index: int
    axis: int | None
    """None when channels cannot be told apart, as in a grouped transposed convolution."""
    rows: int
    """The axis that is summed over, for encodings in blocks."""


def kind_of(node: ir.Node) -> facts.IntegerOp | None:
    """What is known of the operator in integers; None when it only runs in float."""
    if node.domain not in ONNX_DOMAINS:
        return None
    known = facts.integer_ops().get(node.op_type)
    if known is None or not _computes_floats(node):
        return None
    if known.kind == "weighted" and weight_of(node) is None:
        return None
    return known


def weight_of(node: ir.Node) -> Weight | None:
    """The node's constant weights, if it has any."""
    if len(node.inputs) < 2 or constant(node.inputs[1]) is None:
        return None
    return weight_place(node)


def weight_place(node: ir.Node) -> Weight | None:
    """Where such a node has its weights, constant or not."""
    if node.op_type == "Conv":
        return Weight(1, axis=0, rows=1)
    if node.op_type == "ConvTranspose":
        group = node.attributes.get_int("group", 1)
        return Weight(1, axis=1 if group == 1 else None, rows=0)
    if node.op_type == "Gemm":
        turned = node.attributes.get_int("transB", 0)
        return Weight(1, axis=0 if turned else 1, rows=1 if turned else 0)
    if node.op_type == "MatMul":
        shape = fixed_shape(node.inputs[1])
        if shape is not None and len(shape) == 2:
            return Weight(1, axis=1, rows=0)
    return None


def role_of(node: ir.Node, index: int) -> Role:
    """What input ``index`` is; only meaningful for nodes that can be in integers."""
    value = node.inputs[index]
    if value is None or value.dtype not in (ir.DataType.FLOAT, None):
        return Role.PARAMETER
    if (weight := weight_of(node)) is not None:
        return _role_beside_weight(index, weight)
    known = facts.integer_ops().get(node.op_type)
    kind = known.kind if known else ""
    if kind == "norm":
        return (Role.DATA, Role.GAIN, Role.BIAS)[index]
    if kind == "product" and index == 1:
        return Role.RIGHT
    if kind == "moving" and node.op_type != "Concat" and index > 0:
        return Role.PARAMETER
    if kind == "pooling" and index > 0:
        return Role.PARAMETER
    if node.op_type in ("Clip", "HardSigmoid") and index > 0:
        return Role.PARAMETER
    return Role.DATA


def _role_beside_weight(index: int, weight: Weight) -> Role:
    if index == weight.index:
        return Role.WEIGHT
    return Role.BIAS if index == 2 else Role.DATA


def _computes_floats(node: ir.Node) -> bool:
    """Integer arithmetic of the model's own (indices, lengths) is left alone."""
    return all(value.dtype in (ir.DataType.FLOAT, None) for value in node.outputs[:1]) and all(
        value is None or value.dtype != ir.DataType.DOUBLE for value in node.inputs
    )
