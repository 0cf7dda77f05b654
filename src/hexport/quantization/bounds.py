"""What tensors can be whatever the input: ends carried on from the operators that bound their results.

x ──► Sigmoid ──► Mul 4 ──► Add 1 ──► y
        0 … 1      0 … 4     1 … 5
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf

import numpy as np
import onnx_ir as ir

from hexport.quantization.clipping import Range
from hexport.quantization.roles import kind_of
from hexport.rewrite.values import constant, scalar

_ANYTHING: Range = (-inf, inf)


def bounds_of(model: ir.Model) -> dict[str, Range]:
    """The tensors with an end on one side at least."""
    found: dict[str, Range] = {}
    for node in model.graph:
        ends = _of(node, found)
        if ends != _ANYTHING:
            found.update({str(value.name): ends for value in node.outputs})
    return found


def _of(node: ir.Node, known: Mapping[str, Range]) -> Range:
    kind = kind_of(node)
    if kind is not None and kind.range:
        return kind.range[0], kind.range[1]
    read = [_ends(value, known) for value in node.inputs]
    match node.op_type:
        case "Clip":
            return _clipped(node, read[0])
        case "Relu":
            return max(read[0][0], 0.0), max(read[0][1], 0.0)
        case "Neg":
            return -read[0][1], -read[0][0]
        case "Add":
            return read[0][0] + read[1][0], read[0][1] + read[1][1]
        case "Sub":
            return read[0][0] - read[1][1], read[0][1] - read[1][0]
        case "Mul":
            return _product(*read)
        case "Concat":
            return min(low for low, _ in read), max(high for _, high in read)
        case "Max":
            return max(low for low, _ in read), max(high for _, high in read)
        case "Min":
            return min(low for low, _ in read), min(high for _, high in read)
        case "Pad":
            # It brings a number of its own.
            return _ANYTHING
        case "Resize" if node.attributes.get_string("mode", "nearest") == "cubic":
            # It goes beyond what lies on either side of a step.
            return _ANYTHING
    return read[0] if kind is not None and kind.kind == "moving" else _ANYTHING


def _ends(value: ir.Value | None, known: Mapping[str, Range]) -> Range:
    array = constant(value)
    if array is not None and array.size and array.dtype.kind in "fiu" and np.isfinite(array).all():
        return float(array.min()), float(array.max())
    return _ANYTHING if value is None else known.get(str(value.name), _ANYTHING)


def _clipped(node: ir.Node, read: Range) -> Range:
    low, high = (*(scalar(value) for value in node.inputs[1:3]), None, None)[:2]
    least, most = -inf if low is None else low, inf if high is None else high
    return max(read[0], least), min(read[1], most)


def _product(one: Range, other: Range) -> Range:
    if inf in (*map(abs, one), *map(abs, other)):
        return _ANYTHING
    corners = [a * b for a, b in product(one, other)]
    return min(corners), max(corners)
