"""Sigmoid written out, because the HTP's own has an absolute error that swamps small probabilities.

x ──► Sigmoid ──► y          x ──┬─► Min(·, 0) ──► Exp ─────────────────────► Div ──► y
                                 └─► Abs ──► Neg ──► Exp ──► Add(·, 1) ────────┘

Both exponents are at most 0, so nothing overflows, and the quotient keeps its relative precision down to
the smallest fp16 number. A Sigmoid that gates (Swish, attention over channels) is left as it is: there the
absolute error vanishes in the product, and the backend fuses the short form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import Bounds, number, reaches_output
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class SigmoidExact(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"Sigmoid"})
    low: ClassVar[float] = -4.0
    """Above it the short form's error is small beside the value."""

    def __init__(self, ranges: Mapping[str, Bounds] | None = None) -> None:
        super().__init__()
        self.ranges = ranges or {}

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Sigmoid(x)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if not is_float(x):
            return result.fail("its element type is not a float that the NPU has", x)
        if not reaches_output(context.root.outputs[0]):
            return result.fail("its result gates something inside the model, where small values vanish", x)
        measured = self.ranges.get(x.name or "")
        if measured is not None and measured.low >= self.low:
            return result.fail(f"its input was never below {self.low:g}", x)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        numerator = op.Exp(op.Min(x, number(op, x, 0.0)))
        return op.Div(numerator, op.Add(op.Exp(op.Neg(op.Abs(x))), number(op, x, 1.0)))
