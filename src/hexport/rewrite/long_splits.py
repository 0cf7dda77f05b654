"""Shapes of what a Split with many outputs gives, which ONNX's inference cannot tell.

onnx-ir hides constants over a kilobyte from it, and such are a Split's sizes when it has more than 125
outputs, as an unrolled recurrence has.
"""

from __future__ import annotations

import onnx_ir as ir

from hexport.rewrite.values import constant, fixed_shape


def know_long_splits(model: ir.Model) -> bool:
    """Set what is missing; whether anything was."""
    found = [node for node in model.graph.all_nodes() if node.op_type == "Split" and _is_unknown(node)]
    known = [_know(node) for node in found]
    return any(known)


def _is_unknown(node: ir.Node) -> bool:
    return any(value.shape is None for value in node.outputs) and fixed_shape(node.inputs[0]) is not None


def _know(node: ir.Node) -> bool:
    sizes, shape = constant(node.inputs[1] if len(node.inputs) > 1 else None), fixed_shape(node.inputs[0])
    if sizes is None or shape is None or len(sizes) != len(node.outputs):
        return False
    axis = node.attributes.get_int("axis", 0)
    for value, size in zip(node.outputs, sizes, strict=True):
        dims = list(shape)
        dims[axis] = int(size)
        value.shape = ir.Shape(dims)
    return True
