"""What the rules about fp16 share: the limits of the format, and what was measured of a tensor."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

LARGEST = 65504.0
SMALLEST = 2.0**-24
"""The smallest number above 0; smaller constants become 0 on the NPU."""
SMALLEST_NORMAL = 2.0**-14
"""Below it precision is lost bit by bit."""

MOVES = frozenset(
    {
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Transpose",
        "Slice",
        "Identity",
        "Split",
        "Gather",
        "Expand",
    }
)
"""Operators that only move numbers; their first input is what they move."""


class Bounds(Protocol):
    """What a rule wants to know of a tensor; ``hexport.preparation.ranges.Range`` has it."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def number(op: Any, like: ir.Value, value: float, shape: tuple[int, ...] = ()) -> Any:
    """A constant of the element type of ``like``; a scalar unless a shape is given."""
    dtype = np.float16 if like.dtype == ir.DataType.FLOAT16 else np.float32
    return op.Constant(value=ir.tensor(np.full(shape, value, dtype)))


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes a value, if it is of one of these ONNX operators."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def reaches_output(value: ir.Value) -> bool:
    """Whether a value, moved about, joined or averaged with others at most, is an output of the model."""
    if value.is_graph_output():
        return True
    return any(
        _passes_on(user, position) and reaches_output(output)
        for user, position in value.uses()
        for output in user.outputs
    )


_KEEPS_SMALL = frozenset({"Cast", "ReduceMean", "ReduceSum", "ReduceMax", "GlobalAveragePool", "AveragePool"})
"""What many small numbers go into, and a small one comes out of."""


def _passes_on(user: ir.Node, position: int) -> bool:
    if user.op_type == "Where":
        return position > 0
    return user.op_type == "Concat" or (position == 0 and user.op_type in MOVES | _KEEPS_SMALL)


def squared(value: ir.Value | None) -> ir.Value | None:
    """``a``, if the value is a·a or a²."""
    if (product := producer(value, "Mul")) is not None and product.inputs[0] is product.inputs[1]:
        return product.inputs[0]
    power = producer(value, "Pow")
    if power is None:
        return None
    exponent = ir.convenience.get_const_tensor(power.inputs[1]) if power.inputs[1] is not None else None
    is_two = exponent is not None and exponent.size == 1 and float(exponent.numpy().reshape(())) == 2.0
    return power.inputs[0] if is_two else None
