"""Asin becomes a series, of x itself near 0 and of the half angle elsewhere.

x ──► Asin ──► y        |x| < ½:  s(x)                                  s(t) = t + t³/6 + 3t⁵/40 + …
                        else:     sign(x) · (π/2 − 2·s(√((1 − |x|)/2)))
"""

from __future__ import annotations

import math
from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.support.arcsine_formula import arcsine


class AsinToSeries(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Asin"})
    op_type: ClassVar[str] = "Asin"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        found = arcsine(do, x)
        far = do("Add", do("Mul", found.angle, -2.0), math.pi / 2)
        return do("Where", found.is_near, found.angle, do("Mul", do("Sign", x), far))
