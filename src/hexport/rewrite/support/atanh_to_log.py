"""Atanh becomes a logarithm, and a series near 0 where the logarithm of almost 1 has no digits left.

x ──► Atanh ──► y        |x| < ½:  x + x³/3 + x⁵/5 + …
                         else:     ½·log((1 + x) / (1 − x))
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule

_SERIES = tuple(1 / (2 * k + 1) for k in range(7))


class AtanhToLog(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Atanh"})
    op_type: ClassVar[str] = "Atanh"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        ratio = do("Div", do("Add", x, 1.0), do("Sub", 1.0, x))
        return do.near_or_far(x, 0.5, _SERIES, do("Mul", do("Log", ratio), 0.5))
