"""Erf, which no HTP generation has, becomes the Tanh of a polynomial.

x ──► Erf ──► y        x ──► Clip(±3) ──┬─► c·(a + b·c² + d·c⁴) ──► Tanh ──► y
                                        └──────┘

The coefficients are the minimax fit of artanh(erf x)/x in x² on (0, 3]: 6e-5 relative, an eighth of fp16's
step. Forms with Exp (Abramowitz and Stegun 7.1.26) lose small x to cancellation in fp16: 27 dB below 0.1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.support.erf_gelu_form import is_in_gelu, is_used

_BOUND = 3.0
"""From here on erf is 1 in fp16."""
_COEFFICIENTS = (1.12831392, 0.1036408, -0.00161515)


class ErfToTanh(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Erf"})
    op_type: ClassVar[str] = "Erf"

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Erf(x, _check=lambda _, node: is_used(node))

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        if is_in_gelu(context.root):
            return MatchResult().fail("it is part of a GELU, which is fused as a whole", context.root)
        return super().check(context, x)

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        clipped = do("Clip", x, -_BOUND, _BOUND)
        return do("Tanh", do.odd_series(clipped, _COEFFICIENTS))
