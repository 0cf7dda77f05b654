"""The root of a sum of squares, with the squares kept in fp16's range.

x ──► a² ──► ReduceSum ──► Sqrt ──► y          x ──► the norm that ``l2_scaled.py`` draws ──► y

ReduceSumSquare before the Sqrt is taken in the same way.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import producer, squared
from hexport.rewrite.precision.l2_scaled import norm_fits, scaled_norm
from hexport.rewrite.rule import Purpose, Rule


class RootOfSquares(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"Sqrt"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Sqrt(x)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:  # noqa: ARG002
        reduction, base = producer(x, "ReduceSumSquare", "ReduceSum"), None
        if reduction is not None:
            summed = reduction.inputs[0]
            base = summed if reduction.op_type == "ReduceSumSquare" else squared(summed)
        if reduction is None or base is None:
            return MatchResult().fail("it is not the root of a sum of squares", x)
        self._reduction, self._base = reduction, base
        return norm_fits(reduction, base)

    def rewrite(self, op: Any, x: ir.Value) -> Any:  # noqa: ARG002
        return scaled_norm(op, self._reduction, self._base)
