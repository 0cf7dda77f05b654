"""Looking at a value in a rule: its constant, its fixed shape, its element type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def constant(value: ir.Value | None) -> NDArray[np.generic] | None:
    """The array behind a value, if it is an initializer or a Constant's output; else None."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def scalar(value: ir.Value | None) -> float | None:
    """The one number behind a constant with one element; else None."""
    array = constant(value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def fixed_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape, if every dim is a number; else None."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dim) for dim in value.shape.numpy())


def is_float(value: ir.Value | None) -> bool:
    """Whether the element type is known to be float32 or float16."""
    return value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
