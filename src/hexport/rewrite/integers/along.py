"""Recognising what was reduced along one axis: a sum, a mean or a maximum, with its dim kept or put back."""

from __future__ import annotations

import onnx_ir as ir

from hexport.rewrite.integers.readers import maker
from hexport.rewrite.values import constant, fixed_shape, scalar

_SAME = 1e-4

Along = tuple[ir.Value, int]
"""What was reduced, and the axis."""


def reduced(value: ir.Value | None, op_type: str) -> Along | None:
    """What the value is the reduction of; any Reshape that puts the dim back is looked through."""
    node = maker(unshaped(value), op_type)
    data = node.inputs[0] if node is not None else None
    shape = fixed_shape(data)
    if node is None or data is None or shape is None:
        return None
    given = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = node.attributes.get_ints("axes", []) if given is None else given.reshape(-1).tolist()
    return (data, int(axes[0]) % len(shape)) if len(axes) == 1 else None


def mean_of(value: ir.Value | None) -> Along | None:
    """What the value is the mean of, also where a sum is divided by its length."""
    if (found := reduced(value, "ReduceMean")) is not None:
        return found
    node = maker(unshaped(value), "Mul", "Div")
    total = reduced(node.inputs[0], "ReduceSum") if node is not None else None
    number = scalar(node.inputs[1]) if node is not None else None
    if node is None or total is None or not number:
        return None
    length = (fixed_shape(total[0]) or ())[total[1]]
    share = number * length if node.op_type == "Mul" else length / number
    return total if abs(share - 1) < _SAME else None


def unshaped(value: ir.Value | None) -> ir.Value | None:
    """The value before a Reshape, Unsqueeze or Squeeze."""
    node = maker(value, "Reshape", "Unsqueeze", "Squeeze")
    return node.inputs[0] if node is not None else value


def spreads_over(value: ir.Value | None, along: Along) -> bool:
    """Whether the value has one number for each line along the axis, and meets it when combined with all."""
    data, axis = along
    shape = list(fixed_shape(data) or ())
    if not shape:
        return False
    shape[axis] = 1
    return fixed_shape(value) == tuple(shape)
