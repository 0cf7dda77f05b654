"""The inverse sine in operators that the HTP has, for Asin and for Acos.

The HTP's Atan would do but for its absolute error of 1e-4 at 0, which leaves small angles 41 dB.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic

_BOUND = 0.5
_SERIES = (1.0, 1 / 6, 3 / 40, 5 / 112, 35 / 1152, 63 / 2816, 231 / 13312)


@dataclass(frozen=True)
class Arcsine:
    """One series serves both cases, as √((1 − |x|)/2) is at most ½ where |x| is at least ½."""

    is_near: ir.Value
    """|x| < ½."""
    angle: ir.Value
    """asin(x) where near, asin(√((1 − |x|)/2)) = ½·acos(|x|) elsewhere."""


def arcsine(do: Arithmetic, x: ir.Value) -> Arcsine:
    """The angle from which asin and acos follow."""
    magnitude = do("Abs", x)
    is_near = do("Less", magnitude, _BOUND)
    half = do("Sqrt", do("Add", do("Mul", magnitude, -0.5), 0.5))
    return Arcsine(is_near, do.odd_series(do("Where", is_near, x, half), _SERIES))
