"""MultiHeadAttention is taken apart into MatMul and Softmax: the backend does not have it.

query ──► MultiHeadAttention ──► y

query ──► heads ──► Mul scale ──► MatMul ──► (Add masks) ──► Softmax ──► MatMul ──► back ──► y
key ────► heads ─────────────────────┘              value ──► heads ───────┘
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import cut
from hexport.rewrite.support.attention_parts import Masks, attention, float_like, heads, width
from hexport.rewrite.values import fixed_shape

_BIAS, _PADDING, _SCORE_BIAS = 3, 4, 5
_PAST = range(6, 10)


class MultiHeadAttentionApart(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"MultiHeadAttention"})
    op_type: ClassVar[str] = "MultiHeadAttention"
    domain: ClassVar[str] = MICROSOFT

    def why_not(self) -> str:
        if any(self.input(i) is not None for i in _PAST):
            return "it has past keys and values"
        if self.input(1) is None or self.input(2) is None:
            return "query, key and value come packed in one"
        if width(self.input(0)) is None:
            return "the query's last dim is not known"
        if self.input(_BIAS) is not None and None in (width(self.input(1)), width(self.input(2))):
            return "it has a bias, and the last dim of key or value is not known"
        if float_like(self.input(0)) is None:
            return "the query is not known to be float"
        if any(rank not in (None, 3) for rank in map(_rank, self.node.inputs[:3])):
            return "query, key or value are not of rank 3"
        if self.input(_PADDING) is not None and len(fixed_shape(self.input(_PADDING)) or ()) != 2:
            return "the padding mask is not of fixed shape, batch by keys"
        if self.int_attribute("unidirectional", 0) and self._lengths() is None:
            return "it is causal, and the lengths of query and key are not fixed"
        return ""

    def replace(self, op: Any) -> Any:
        count = self.int_attribute("num_heads", 1)
        like = float_like(self.input(0)) or self.required(0)
        query, key, value = self._biased(op)
        scale = self.float_attribute("scale", 0.0) or 1 / math.sqrt((width(self.input(0)) or 1) // count)
        masks = Masks(
            self.input(_SCORE_BIAS),
            self.input(_PADDING),
            self._lengths() if self.int_attribute("unidirectional", 0) else None,
            self.float_attribute("mask_filter_value", -10000.0),
        )
        split = heads(op, query, count), heads(op, key, count, keys=True), heads(op, value, count)
        return attention(op, *split, scale, masks, like)

    def _biased(self, op: Any) -> list[ir.Value]:
        parts = [self.required(i) for i in range(3)]
        bias = self.input(_BIAS)
        if bias is None:
            return parts
        sizes = [width(part) or 0 for part in parts]
        ends = [sum(sizes[: i + 1]) for i in range(3)]
        return [
            op.Add(part, cut(op, bias, end - size, end, 0))
            for part, size, end in zip(parts, sizes, ends, strict=True)
        ]

    def _lengths(self) -> tuple[int, int] | None:
        query, key = fixed_shape(self.input(0)), fixed_shape(self.input(1))
        return None if query is None or key is None else (query[1], key[1])


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)
