"""Resampling by operators that the compiler gets right: Gather for nearest, MatMul for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from hexport.rewrite.faults.resampling import Resampling
from hexport.rewrite.values import fixed_shape


def resampled(op: Any, x: ir.Value, along: Mapping[int, Resampling]) -> Any:
    """``x`` resampled on each of the axes, one after the other."""
    shape = list(fixed_shape(x) or ())
    y: Any = x
    for axis, resampling in along.items():
        if resampling.mode == "nearest":
            y = op.Gather(y, op.Constant(value=ir.tensor(resampling.indices())), axis=axis)
        else:
            y = _weighted(op, y, x.dtype, shape, axis, resampling)
        shape[axis] = resampling.out
    return op.Identity(x) if y is x else y


def _weighted(
    op: Any, x: Any, dtype: ir.DataType | None, shape: list[int], axis: int, resampling: Resampling
) -> Any:
    """One MatMul on three axes (before, this one, after): the NPU takes no MatMul in 5-D."""
    assert dtype is not None
    weights = np.ascontiguousarray(resampling.matrix().T.astype(dtype.numpy()))
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    flat = op.Reshape(x, _ints(op, [before, resampling.size, after]))
    y = op.MatMul(op.Constant(value=ir.tensor(weights)), flat)
    return op.Reshape(y, _ints(op, [*shape[:axis], resampling.out, *shape[axis + 1 :]]))


def _ints(op: Any, numbers: list[int]) -> Any:
    return op.Constant(value=ir.tensor(np.array(numbers, np.int64)))
