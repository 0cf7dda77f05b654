"""A Sigmoid at the model's end that stays in float, written out again.

x ──► Sigmoid ──► output          x ──► Exp …, as in rewrite/precision/sigmoid_exact.py ──► output

For integers it was made whole (rewrite/integers/sigmoid_whole.py). The HTP's own in fp16 is good for 8 bits:
probabilities of a face detector had 7 dB where integers, or the quotient, have 30.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.quantization.histogram import Histogram
from hexport.quantization.plan import FLOAT, Plan
from hexport.rewrite.applying import apply_rules
from hexport.rewrite.precision.sigmoid_exact import SigmoidExact


def write_out_float_sigmoids(model: ir.Model, plan: Plan, histograms: Mapping[str, Histogram]) -> None:
    """Change ``model``, to which ``plan`` belongs."""
    if any(node.op_type == "Sigmoid" and plan.of(node) == FLOAT for node in model.graph):
        apply_rules(model, [_InFloat(plan, histograms)], inferred=True)


class _InFloat(SigmoidExact):
    def __init__(self, plan: Plan, histograms: Mapping[str, Histogram]) -> None:
        super().__init__(histograms)
        self._plan = plan

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        if self._plan.of(context.root) != FLOAT:
            return MatchResult().fail("it computes in integers", x)
        return super().check(context, x)
