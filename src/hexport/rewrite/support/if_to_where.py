"""If becomes both of its branches and a choice between their results: the backend has no If.

c ──► If(then, else) ──► y        then ──► a ─┐
                                  else ──► b ─┼─► Where ──► y
                                  c ──────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.any_outputs import AnyOutputs
from hexport.rewrite.support.body_inlining import inlined, size_of
from hexport.rewrite.values import fixed_shape


class IfToWhere(AnyOutputs):
    cures: ClassVar[frozenset[str]] = frozenset({"If"})
    op_type: ClassVar[str] = "If"
    max_nodes: ClassVar[int] = 512
    """Both branches are computed each time; one of a whole network is better left out."""

    def why_not(self) -> str:
        for output in self.node.outputs:
            # ONNX gives an If's result a size where both branches give it that.
            if fixed_shape(output) is None or output.dtype is None:
                return f"the branches may give `{output.name}` in two sizes"
        if (made := sum(map(size_of, self._branches()))) > self.max_nodes:
            return f"both branches would make {made} nodes, more than {self.max_nodes}"
        return ""

    def replace(self, op: Any) -> Sequence[ir.Value]:
        label = self.node.name or str(self.node.outputs[0].name)
        then, other = (
            inlined(branch, [], self.node, f"{label}/{name}")
            for branch, name in zip(self._branches(), ("then", "else"), strict=True)
        )
        results = []
        for output, one, two in zip(self.node.outputs, then, other, strict=True):
            # The condition is one truth of any rank, and must not widen the result.
            sizes = np.ones(len(fixed_shape(output) or ()), np.int64)
            shape = op.initializer(ir.tensor(sizes), name=f"{output.name}.ones")
            results.append(op.Where(op.Reshape(self.input(0), shape), one, two))
        return results

    def _branches(self) -> tuple[ir.Graph, ir.Graph]:
        attributes = self.node.attributes
        return attributes["then_branch"].as_graph(), attributes["else_branch"].as_graph()
