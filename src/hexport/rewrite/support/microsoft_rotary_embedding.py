"""ONNX Runtime's RotaryEmbedding is spelled out: the backend has only that of ONNX's opset 23.

x ──► RotaryEmbedding ──► y          x ──► halves a, b ──► a·cos − b·sin ──► Concat ──► y
positions, tables ─┘                                  └──► b·cos + a·sin ──────┘
                                     cos, sin: Gather of the tables by position
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import cut, reshape
from hexport.rewrite.values import fixed_shape

_END = int(np.iinfo(np.int64).max)


class MicrosoftRotaryEmbeddingApart(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"RotaryEmbedding"})
    op_type: ClassVar[str] = "RotaryEmbedding"
    domain: ClassVar[str] = MICROSOFT

    def why_not(self) -> str:
        if self.int_attribute("rotary_embedding_dim", 0):
            return "it rotates a part of each head only"
        if len(fixed_shape(self.input(1)) or ()) != 2:
            return "the positions are not of fixed shape, batch by sequence"
        if fixed_shape(self.input(2)) is None:
            return "the shape of the tables is not fixed"
        rank = self.required(0).shape
        return (
            "" if rank is not None and len(rank) in (3, 4) else "the input's rank is not known to be 3 or 4"
        )

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        flat = len(value.shape or ()) == 3
        half = (fixed_shape(self.input(2)) or (0, 0))[1]
        batch, length = fixed_shape(self.input(1)) or (0, 0)
        # Heads come after the sequence where they are part of the last axis, else before it.
        places = (batch, length, 1, half) if flat else (batch, 1, length, half)
        cos, sin = (
            reshape(op, op.Gather(self.required(table), self.required(1), axis=0), places) for table in (2, 3)
        )
        if flat:
            value = reshape(op, value, (0, 0, -1, 2 * half))
        turned = self._turned(op, value, cos, sin, half)
        return reshape(op, turned, (0, 0, -1)) if flat else turned

    def _turned(self, op: Any, value: ir.Value, cos: ir.Value, sin: ir.Value, half: int) -> ir.Value:
        if not self.int_attribute("interleaved", 0):
            made: ir.Value = op.Concat(
                *_rotated(op, cut(op, value, 0, half, 3), cut(op, value, half, 2 * half, 3), cos, sin), axis=3
            )
            return made
        pairs = cut(op, value, 0, _END, 3, 2), cut(op, value, 1, _END, 3, 2)
        parts = [reshape(op, part, (0, 0, 0, half, 1)) for part in _rotated(op, *pairs, cos, sin)]
        return reshape(op, op.Concat(*parts, axis=4), (0, 0, 0, -1))


def _rotated(op: Any, a: ir.Value, b: ir.Value, cos: ir.Value, sin: ir.Value) -> tuple[ir.Value, ir.Value]:
    return op.Sub(op.Mul(a, cos), op.Mul(b, sin)), op.Add(op.Mul(b, cos), op.Mul(a, sin))
