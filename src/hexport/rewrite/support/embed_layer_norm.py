"""EmbedLayerNormalization is taken apart: the backend has its parts.

ids ──► EmbedLayerNormalization ──► y          ids ──► Gather ──► Add ──► Add ──► LayerNormalization ──► y
                                               positions [0..S) ──┘       │
                                               segments ──► Gather ───────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import cut, layer_norm
from hexport.rewrite.values import fixed_shape, is_float

_IDS, _SEGMENTS, _WORD, _POSITION, _SEGMENT, _GAMMA, _BETA, _POSITION_IDS = 0, 1, 2, 3, 4, 5, 6, 8


class EmbedLayerNormApart(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"EmbedLayerNormalization"})
    op_type: ClassVar[str] = "EmbedLayerNormalization"
    domain: ClassVar[str] = MICROSOFT

    def why_not(self) -> str:
        if self.input(_POSITION_IDS) is None and fixed_shape(self.required(_IDS)) is None:
            return "the shape of the ids is not fixed"
        return "" if is_float(self.required(_GAMMA)) else "the scale is not known to be float"

    def replace(self, op: Any) -> Any:
        total = op.Gather(self.required(_WORD), self.required(_IDS), axis=0)
        positions, table = self.input(_POSITION_IDS), self.required(_POSITION)
        if positions is not None:
            rows = op.Gather(table, positions, axis=0)
        else:
            length = (fixed_shape(self.required(_IDS)) or (0, 0))[1]
            rows = cut(op, table, 0, length, 0)
        total = op.Add(total, rows)
        segments = self.input(_SEGMENTS)
        if segments is not None:
            total = op.Add(total, op.Gather(self.required(_SEGMENT), segments, axis=0))
        epsilon = self.float_attribute("epsilon", 1e-12)
        return layer_norm(op, total, self.required(_GAMMA), self.required(_BETA), epsilon, self.opset)
