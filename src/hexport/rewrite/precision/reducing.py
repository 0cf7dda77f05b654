"""Reductions: their axes, which moved from attribute to input at different opsets for each operator."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from hexport.rewrite.values import constant

_AXES_ARE_INPUT_SINCE = {"ReduceSum": 13}
"""All others: 18."""


def axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """The axes, () for none at all, or None when they are not constant. All axes when none are named."""
    axes: tuple[int, ...] = ()
    if "axes" in node.attributes:
        axes = tuple(node.attributes["axes"].as_ints())
    elif len(node.inputs) > 1 and node.inputs[1] is not None:
        given = constant(node.inputs[1])
        if given is None:
            return None
        axes = tuple(int(axis) for axis in given.reshape(-1))
    if axes or bool(node.attributes.get_int("noop_with_empty_axes", 0)):
        return axes
    value = node.inputs[0]
    return None if value is None or value.shape is None else tuple(range(len(value.shape)))


def terms(node: ir.Node) -> int | None:
    """How many numbers one result is made of; None when that is not fixed."""
    axes, value = axes_of(node), node.inputs[0]
    if axes is None or value is None or value.shape is None:
        return None
    dims = [value.shape[axis] for axis in axes]
    known = [dim for dim in dims if isinstance(dim, int)]
    return prod(known) if len(known) == len(dims) else None


def reduce(op: Any, op_type: str, value: Any, axes: tuple[int, ...], opset: int, keepdims: int = 1) -> Any:
    """A reduction over ``axes`` in the form that ``opset`` has."""
    make = getattr(op, op_type)
    if opset >= _AXES_ARE_INPUT_SINCE.get(op_type, 18):
        return make(value, op.Constant(value=ir.tensor(np.array(axes, np.int64))), keepdims=keepdims)
    return make(value, axes=list(axes), keepdims=keepdims)


def squeeze(op: Any, value: Any, axes: tuple[int, ...], opset: int) -> Any:
    """A value without ``axes``, each of size 1."""
    if opset >= 13:
        return op.Squeeze(value, op.Constant(value=ir.tensor(np.array(axes, np.int64))))
    return op.Squeeze(value, axes=list(axes))


def like_reduction(op: Any, op_type: str, node: ir.Node) -> Any:
    """The reduction that ``node`` is, of another kind."""
    axes = axes_of(node)
    assert axes is not None
    return reduce(op, op_type, node.inputs[0], axes, opset_of(node), node.attributes.get_int("keepdims", 1))


def opset_of(node: ir.Node) -> int:
    """The version of ONNX's operators in the graph that holds a node."""
    graph = node.graph
    return graph.opset_imports.get("", 1) if graph is not None else 1
