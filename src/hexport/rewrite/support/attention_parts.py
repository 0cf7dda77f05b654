"""Attention out of MatMul and Softmax, for ONNX Runtime's fused operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from hexport.rewrite.pieces import array, filled, reshape, transpose
from hexport.rewrite.values import constant, fixed_shape, is_float

_LEAST = -3e4
"""Two such masks still add up to a number in fp16; and no score is seen any more beside it."""
_KEEP_TYPE = frozenset({"Add", "MatMul", "Mul", "LayerNormalization", "Reshape"})


@dataclass(frozen=True)
class Masks:
    """What is added to the scores. ``keys``, batch by keys, is 0 for padding and else more."""

    bias: ir.Value | None = None
    keys: ir.Value | None = None
    causal: tuple[int, int] | None = None
    """Queries and keys, when a query may see only what came before it."""
    hidden: float = -10000.0
    """The number that stands for "not seen"."""


def heads(op: Any, value: ir.Value, count: int, *, keys: bool = False) -> ir.Value:
    """Batch, sequence, hidden → batch, heads, sequence, head; the last two swapped for keys."""
    return transpose(op, reshape(op, value, (0, 0, count, -1)), (0, 2, 3, 1) if keys else (0, 2, 1, 3))


def attention(
    op: Any, query: ir.Value, key: ir.Value, value: ir.Value, scale: float, masks: Masks, like: ir.Value
) -> ir.Value:
    """Queries and values with heads before the sequence, keys with their last axes swapped."""
    # Scaled before the product: in fp16 the scores of wide heads may not fit otherwise.
    scores = op.MatMul(op.Mul(query, filled(op, scale, like)), key)
    for mask in _masks(op, masks, like):
        scores = op.Add(scores, mask)
    seen = transpose(op, op.MatMul(op.Softmax(scores, axis=-1), value), (0, 2, 1, 3))
    return reshape(op, seen, (0, 0, -1))


def _masks(op: Any, masks: Masks, like: ir.Value) -> list[ir.Value]:
    made = [] if masks.bias is None else [masks.bias]
    unseen = max(masks.hidden, _LEAST)
    if masks.keys is not None:
        seen = op.Greater(masks.keys, filled(op, 0, masks.keys))
        added = op.Where(seen, filled(op, 0, like), filled(op, unseen, like))
        batch, keys = fixed_shape(masks.keys) or (0, -1)
        made.append(reshape(op, added, (batch, 1, 1, keys)))
    if masks.causal is not None:
        queries, keys = masks.causal
        after = np.triu(np.ones((queries, keys), np.bool_), 1 + keys - queries)
        triangle = np.where(after, unseen, 0).astype((like.dtype or ir.DataType.FLOAT).numpy())
        made.append(array(op, triangle))
    return made


def width(value: ir.Value | None) -> int | None:
    """The size of the last axis: by the shape, or by the constant that was last added or multiplied.

    Shapes are not inferred through contrib operators, and these come in rows.
    """
    if value is None:
        return None
    if value.shape is not None and isinstance(value.shape[-1], int):
        return int(value.shape[-1])
    maker = value.producer()
    if maker is None:
        return None
    place = {"MatMul": [1], "Add": [0, 1], "LayerNormalization": [1]}.get(maker.op_type, [])
    constants = [constant(maker.inputs[i]) for i in place if i < len(maker.inputs)]
    sizes = [
        known.shape[-1] for known in constants if known is not None and known.ndim and known.shape[-1] > 1
    ]
    if sizes:
        return int(sizes[0])
    return next((found for v in _followed(maker) if (found := width(v))), None)


def float_like(value: ir.Value | None) -> ir.Value | None:
    """A value of the same element type, known to be float: itself, or what it was made of."""
    if value is None or is_float(value):
        return value
    maker = value.producer()
    keeps_type = maker is not None and maker.op_type in _KEEP_TYPE
    inputs = maker.inputs if maker is not None and keeps_type else ()
    return next((found for v in reversed(inputs) if (found := float_like(v)) is not None), None)


def _followed(maker: ir.Node) -> Sequence[ir.Value | None]:
    return maker.inputs if maker.op_type == "Add" else ()
