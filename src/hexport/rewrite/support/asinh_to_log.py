"""Asinh becomes a logarithm, and a series near 0 where the logarithm of almost 1 has no digits left.

x ──► Asinh ──► y        |x| < ½:  x − x³/6 + 3x⁵/40 − …
                         else:     sign(x) · (log 2 + log(|x|·(½ + ½·√(1 + 1/x²))))
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule
from hexport.rewrite.support.asinh_formula import asinh


class AsinhToLog(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Asinh"})
    op_type: ClassVar[str] = "Asinh"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        return asinh(do, x)
