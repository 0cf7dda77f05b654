"""Numbers that a rule writes into its replacement, in the element type of the value they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir


def number(op: Any, value: float, like: ir.Value) -> ir.Value:
    """One number, in ``like``'s element type, which the rule's check has found to be known."""
    dtype = like.dtype or ir.DataType.FLOAT
    return _constant(op, np.array(value, dtype.numpy()))


def whole_numbers(op: Any, values: Sequence[int]) -> ir.Value:
    """A list of int64: axes, a shape, the ends of a slice."""
    return _constant(op, np.array(values, np.int64))


def _constant(op: Any, array: np.ndarray[Any, Any]) -> ir.Value:
    made: ir.Value = op.Constant(value=ir.tensor(array))
    # Later lines of the same rule ask a constant for its type, before any inference has run.
    made.dtype = ir.DataType.from_numpy(array.dtype)
    return made
