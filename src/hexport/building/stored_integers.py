"""What a QuantizeLinear or DequantizeLinear has stored: integers, scales, zero points, and their meaning."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from hexport.model.axes import along

ROUNDINGS_APART = 2.0
"""Steps, on the whole: so far two roundings of the same weights lie from each other."""


def reals(node: ir.Node) -> np.ndarray | None:
    """What a DequantizeLinear of a constant gives; None: what it reads is computed."""
    if not is_stored(node, 0):
        return None
    integers, scale = numbers(node, 0), numbers(node, 1)
    zero = numbers(node, 2) if len(node.inputs) > 2 else np.zeros_like(scale)
    axis, block = (
        node.attributes.get_int(name, default) for name, default in (("axis", 1), ("block_size", 0))
    )
    if block:
        scale, zero = (np.repeat(array, block, axis) for array in (scale, zero))
    elif scale.ndim == 1:
        shape = along(axis, integers.ndim)
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    found: np.ndarray = (integers - zero) * scale
    return found


def reach(node: ir.Node) -> float:
    """The largest number that a DequantizeLinear with one scale can give."""
    zero = node.inputs[2].const_value if len(node.inputs) > 2 and node.inputs[2] is not None else None
    # Without a zero point it is of 8 bits without a sign: so says the standard.
    ends = np.iinfo(np.uint8 if zero is None else zero.dtype.numpy())
    middle = 0.0 if zero is None else float(zero.numpy().item())
    return max(middle - ends.min, ends.max - middle) * float(numbers(node, 1).item())


def is_stored(node: ir.Node, index: int) -> bool:
    """Whether an input is a constant."""
    value = node.inputs[index]
    return value is not None and value.const_value is not None


def numbers(node: ir.Node, index: int) -> np.ndarray:
    """An input that is a constant."""
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy().astype(np.float64)
