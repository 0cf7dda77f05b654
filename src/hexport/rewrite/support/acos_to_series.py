"""Acos becomes a series, of x itself near 0 and of the half angle elsewhere.

x ──► Acos ──► y        |x| < ½:  π/2 − s(x)                        s(t) = t + t³/6 + 3t⁵/40 + …
                        x ≥ ½:    2·s(√((1 − x)/2))
                        x ≤ −½:   π − 2·s(√((1 + x)/2))
"""

from __future__ import annotations

import math
from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.support.arcsine_formula import arcsine


class AcosToSeries(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Acos"})
    op_type: ClassVar[str] = "Acos"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        found = arcsine(do, x)
        near = do("Add", do("Neg", found.angle), math.pi / 2)
        right = do("Mul", found.angle, 2.0)
        left = do("Add", do("Neg", right), math.pi)
        far = do("Where", do("Less", x, 0.0), left, right)
        return do("Where", found.is_near, near, far)
