"""What the rules share that keep an operator's input where the HTP computes it rightly."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import scalar


class ClippedInputRule(FloatFunctionRule):
    """``op_type(x)`` becomes ``op_type(Clip(x, low, high))``, unless x is so clipped already."""

    purpose: ClassVar[Purpose] = Purpose.FAULT
    low: ClassVar[float]
    high: ClassVar[float]

    def pattern(self, op: Any, x: Any) -> Any:
        return getattr(op, self.op_type)(x, _check=self._is_open)

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        return do(self.op_type, do("Clip", x, self.low, self.high))

    def _is_open(self, context: MatchContext, node: ir.Node) -> bool:
        del context
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is None or before.op_type != "Clip" or len(before.inputs) != 3:
            return True
        low, high = scalar(before.inputs[1]), scalar(before.inputs[2])
        return low is None or high is None or low < self.low or high > self.high
