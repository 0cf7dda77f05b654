"""AveragePool over padding becomes a depthwise Conv, whose means are corrected where a window covers less.

x ──► AveragePool(pads | SAME_* | ceil_mode) ──► y

x ──► Conv(1/n, pads) ──► Mul(n / elements covered) ──► y

The compiler averages memory it never wrote where a window hangs over the data: which pads and strides
come out wrong changes with what ran before, and SAME_UPPER can kill the process. A Conv's padding is
zeros, and how many elements each window covers is known beforehand.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.windows import Walk, padding, walks, window_sums
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class AveragePoolPadded(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"AveragePool"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.AveragePool(x, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        node = context.root
        if not is_float(x):
            return result.fail("the element type is not float", x)
        along = walks(node)
        if isinstance(along, str):
            return result.fail(along, node)
        if not any(padding(along)):
            return result.fail("no window reaches past the data", node)
        if (_counts(node, along) == 0).any():
            return result.fail("a window covers nothing", node)
        self._node, self._along = node, along
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        assert x.dtype is not None
        counts = _counts(self._node, self._along)
        whole = float(counts.max())
        means = window_sums(op, x, x, self._along, 1 / whole)
        if (counts == whole).all():
            return means
        return op.Mul(means, op.Constant(value=ir.tensor((whole / counts).astype(x.dtype.numpy()))))


def _counts(node: ir.Node, along: list[Walk]) -> NDArray[np.float64]:
    """What ONNX divides by, for every place of the output."""
    with_padding = node.attributes.get_int("count_include_pad", 0) == 1
    counts = reduce(np.multiply.outer, [walk.counts(with_padding=with_padding) for walk in along])
    return np.asarray(counts)[np.newaxis, np.newaxis]
