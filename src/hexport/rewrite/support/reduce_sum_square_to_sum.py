"""ReduceSumSquare becomes the sum of squares.

x ──► ReduceSumSquare(axes) ──► y        x ──┬─► Mul ──► ReduceSum(axes) ──► y
                                             └────┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.reduction import ReductionRule


class ReduceSumSquareToSum(ReductionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceSumSquare"})
    op_type: ClassVar[str] = "ReduceSumSquare"

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return self.reduce(op, "ReduceSum", op.Mul(x, x))
