"""Acosh becomes an inverse hyperbolic sine of half the argument, which is exact near 1 too.

x ──► Acosh ──► y        x ──► Sub(1) ──► Mul(½) ──► Sqrt ──► asinh (see AsinhToLog) ──► Mul(2) ──► y
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.support.asinh_formula import asinh_of_positive


class AcoshToLog(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Acosh"})
    op_type: ClassVar[str] = "Acosh"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        half = do("Sqrt", do("Mul", do("Sub", x, 1.0), 0.5))
        return do("Mul", asinh_of_positive(do, half), 2.0)
