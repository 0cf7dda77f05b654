"""Sinh becomes exponentials, and a series near 0 where their difference has no digits left.

x ──► Sinh ──► y        |x| < 1:  x + x³/6 + x⁵/120 + x⁷/5040
                        else:     ½·(exp(x) − exp(−x))
"""

from __future__ import annotations

from math import factorial
from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule

_SERIES = tuple(1 / factorial(2 * k + 1) for k in range(4))


class SinhToExp(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Sinh"})
    op_type: ClassVar[str] = "Sinh"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        far = do("Mul", do("Sub", do.exp(x), do.exp(do("Neg", x))), 0.5)
        return do.near_or_far(x, 1.0, _SERIES, far)
