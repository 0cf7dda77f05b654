"""Two changes of shape in a row become one, where the shape between them has more axes than the HTP takes.

x ──► Reshape [·6] ──► Reshape ──► y          x ──► Reshape ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape
from hexport.rewrite.support.low_rank import has_many_axes
from hexport.rewrite.values import fixed_shape

_ONLY_SHAPE = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


class ReshapeChain(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset(_ONLY_SHAPE)
    op_type: ClassVar[str] = "Reshape"

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        if self._before() is None:
            return "its input does not come from a change of shape"
        return "" if self._result() is not None else "the output's shape is not fixed"

    def replace(self, op: Any) -> Any:
        before, result = self._before(), self._result()
        return None if before is None or result is None else reshape(op, before, result)

    def _before(self) -> ir.Value | None:
        maker = self.required(0).producer()
        if maker is None or maker.domain != "" or maker.op_type not in _ONLY_SHAPE:
            return None
        return maker.inputs[0]

    def _result(self) -> tuple[int, ...] | None:
        shape = fixed_shape(self.node.outputs[0])
        return None if shape is None or 0 in shape else shape


class SqueezeChain(ReshapeChain):
    op_type: ClassVar[str] = "Squeeze"


class FlattenChain(ReshapeChain):
    op_type: ClassVar[str] = "Flatten"
