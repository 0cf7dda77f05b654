"""ONNX Runtime's Attention is taken apart into MatMul and Softmax: the backend does not have it.

x ──► Attention ──► y          x ──► MatMul W ──► Add b ──► q, k, v ──► heads ──► attention ──► y
W, b ────┘
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import cut
from hexport.rewrite.support.attention_parts import Masks, attention, heads, width
from hexport.rewrite.values import fixed_shape, is_float

_WEIGHT, _BIAS, _MASK, _PAST, _SCORE_BIAS = 1, 2, 3, 4, 5


class MicrosoftAttentionApart(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Attention"})
    op_type: ClassVar[str] = "Attention"
    domain: ClassVar[str] = MICROSOFT

    def why_not(self) -> str:
        if self.input(_PAST) is not None:
            return "it has past keys and values"
        if self.int_attribute("do_rotary", 0):
            return "it rotates its queries and keys"
        if width(self.input(_WEIGHT)) is None or not is_float(self.input(_WEIGHT)):
            return "the weight's shape or type is not known"
        if self.input(_MASK) is not None and len(fixed_shape(self.input(_MASK)) or ()) != 2:
            return "the mask is not of fixed shape, batch by keys"
        if self.int_attribute("unidirectional", 0) and fixed_shape(self.input(0)) is None:
            return "it is causal, and the length of its input is not fixed"
        return ""

    def replace(self, op: Any) -> Any:
        weight, bias = self.required(_WEIGHT), self.input(_BIAS)
        mixed = op.MatMul(self.required(0), weight)
        if bias is not None:
            mixed = op.Add(mixed, bias)
        sizes = self._sizes()
        ends = [sum(sizes[: i + 1]) for i in range(3)]
        query, key, value = (
            cut(op, mixed, end - size, end, 2) for size, end in zip(sizes, ends, strict=True)
        )
        count = self.int_attribute("num_heads", 1)
        scale = self.float_attribute("scale", 0.0) or 1 / math.sqrt(sizes[0] // count)
        split = heads(op, query, count), heads(op, key, count, keys=True), heads(op, value, count)
        return attention(op, *split, scale, self._masks(), weight)

    def _sizes(self) -> list[int]:
        total = width(self.input(_WEIGHT)) or 0
        return list(self.node.attributes.get_ints("qkv_hidden_sizes", [total // 3] * 3))

    def _masks(self) -> Masks:
        shape = fixed_shape(self.input(0))
        causal = self.int_attribute("unidirectional", 0) and shape is not None
        return Masks(
            self.input(_SCORE_BIAS),
            self.input(_MASK),
            (shape[1], shape[1]) if causal and shape is not None else None,
            self.float_attribute("mask_filter_value", -10000.0),
        )
