"""What structural rules build with: array constants, and operators whose form changed between opsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

_FIRST_WITH_AXES_INPUT = {"ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18}
_FIRST_LAYER_NORM = 17


def array(op: Any, values: NDArray[Any]) -> ir.Value:
    """A constant."""
    made: ir.Value = op.Constant(value=ir.tensor(np.ascontiguousarray(values)))
    return made


def numpy_type(value: ir.Value) -> np.dtype[Any]:
    """The element type; float32 where it is not known."""
    return np.dtype((value.dtype or ir.DataType.FLOAT).numpy())


def filled(op: Any, value: float, like: ir.Value, shape: Sequence[int] = ()) -> ir.Value:
    """One number, repeated to ``shape``, in the element type of ``like``."""
    return array(op, np.full(tuple(shape), value, numpy_type(like)))


def reshape(op: Any, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Reshape to a fixed shape; 0 and -1 have ONNX's meaning."""
    made: ir.Value = op.Reshape(value, array(op, np.array(shape, np.int64)))
    return made


def take(op: Any, value: ir.Value, indices: Sequence[int], axis: int) -> ir.Value:
    """The named positions of one axis, in that order."""
    made: ir.Value = op.Gather(value, array(op, np.array(indices, np.int64)), axis=axis)
    return made


def cut(op: Any, value: ir.Value, start: int, end: int, axis: int, step: int = 1) -> ir.Value:
    """One Slice of one axis."""
    parts = [array(op, np.array([number], np.int64)) for number in (start, end, axis, step)]
    made: ir.Value = op.Slice(value, *parts)
    return made


def flip(op: Any, value: ir.Value, axis: int) -> ir.Value:
    """One axis, last first."""
    return cut(op, value, -1, np.iinfo(np.int64).min, axis, -1)


def transpose(op: Any, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    """Transpose, or the value itself when nothing moves."""
    if list(perm) == sorted(perm):
        return value
    made: ir.Value = op.Transpose(value, perm=list(perm))
    return made


def reduce(
    op: Any, kind: str, value: ir.Value, axes: Sequence[int], opset: int, *, keepdims: bool = True
) -> ir.Value:
    """A reduction, whose axes were an attribute once."""
    build = getattr(op, kind)
    keep = int(keepdims)
    made: ir.Value
    if opset >= _FIRST_WITH_AXES_INPUT[kind]:
        made = build(value, array(op, np.array(axes, np.int64)), keepdims=keep)
    else:
        made = build(value, axes=list(axes), keepdims=keep)
    return made


def layer_norm(
    op: Any, value: ir.Value, scale: ir.Value, bias: ir.Value | None, epsilon: float, opset: int
) -> ir.Value:
    """LayerNormalization over the last axis; spelled out for opsets that do not have it."""
    made: ir.Value
    if opset >= _FIRST_LAYER_NORM:
        inputs = [value, scale] if bias is None else [value, scale, bias]
        made = op.LayerNormalization(*inputs, axis=-1, epsilon=epsilon)
        return made
    centred = op.Sub(value, reduce(op, "ReduceMean", value, [-1], opset))
    made = op.Mul(root_mean_square_norm(op, centred, scale, epsilon, opset), scale)
    return made if bias is None else op.Add(made, bias)


def root_mean_square_norm(op: Any, value: ir.Value, like: ir.Value, epsilon: float, opset: int) -> ir.Value:
    """value / sqrt(mean(value²) + epsilon), over the last axis, in the element type of ``like``."""
    # BERT's 1e-12 is nothing in fp16, and a row of zeros would become 0 / 0.
    epsilon = max(epsilon, float(np.finfo(numpy_type(like)).smallest_subnormal))
    variance = reduce(op, "ReduceMean", op.Mul(value, value), [-1], opset)
    made: ir.Value = op.Div(value, op.Sqrt(op.Add(variance, filled(op, epsilon, like))))
    return made
