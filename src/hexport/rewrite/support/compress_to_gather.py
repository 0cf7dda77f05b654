"""Compress by a constant condition becomes Gather: the backend has no Compress.

x ──► Compress ──► y          x ──► Gather(the kept positions) ──► y
condition ─┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape, take
from hexport.rewrite.values import constant


class CompressToGather(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Compress"})
    op_type: ClassVar[str] = "Compress"

    def why_not(self) -> str:
        condition = constant(self.input(1))
        if condition is None:
            return "the condition is not constant"
        return "" if condition.any() else "nothing is kept"

    def replace(self, op: Any) -> Any:
        kept = np.flatnonzero(np.asarray(constant(self.input(1)))).tolist()
        value = self.required(0)
        if "axis" not in self.node.attributes:
            return take(op, reshape(op, value, [-1]), kept, 0)
        return take(op, value, kept, self.int_attribute("axis", 0))
