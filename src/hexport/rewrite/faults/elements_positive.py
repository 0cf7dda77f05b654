"""Making sure that computed indices count from the front.

i ──► Where(i < 0, i + n, i)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchResult

from hexport.rewrite.values import constant, fixed_shape


def why_not(x: ir.Value, indices: ir.Value, node: ir.Node) -> MatchResult:
    """Fails for constants, which the provider counts right itself, and for what was made positive before."""
    result = MatchResult()
    if constant(indices) is not None:
        return result.fail("the indices are constant", indices)
    if fixed_shape(x) is None or indices.dtype is None:
        return result.fail("the size of the axis is not known", x)
    producer = indices.producer()
    if producer is not None and producer.op_type == "Where":
        return result.fail("the indices were made positive already", node)
    return result


def positive(op: Any, x: ir.Value, indices: ir.Value, axis: int) -> Any:
    """``indices`` into ``axis`` of ``x``, counted from the front."""
    shape = fixed_shape(x)
    assert shape is not None
    assert indices.dtype is not None
    kind = indices.dtype.numpy()
    zero = op.Constant(value=ir.tensor(np.zeros((), kind)))
    size = op.Constant(value=ir.tensor(np.array(shape[axis], kind)))
    return op.Where(op.Less(indices, zero), op.Add(indices, size), indices)
