"""ReduceL1 becomes the sum of magnitudes.

x ──► ReduceL1(axes) ──► y        x ──► Abs ──► ReduceSum(axes) ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.reduction import ReductionRule


class ReduceL1ToSum(ReductionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceL1"})
    op_type: ClassVar[str] = "ReduceL1"

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return self.reduce(op, "ReduceSum", op.Abs(x))
