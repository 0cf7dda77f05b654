"""The inverse hyperbolic sine in operators that the HTP has, for Asinh and for Acosh."""

from __future__ import annotations

import math

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic

_BOUND = 0.5
_SERIES = (1.0, -1 / 6, 3 / 40, -5 / 112, 35 / 1152)


def asinh_of_positive(do: Arithmetic, x: ir.Value) -> ir.Value:
    """x ≥ 0."""
    return do.near_or_far(x, _BOUND, _SERIES, _far(do, x))


def asinh(do: Arithmetic, x: ir.Value) -> ir.Value:
    """Any x."""
    far = do("Mul", do("Sign", x), _far(do, do("Abs", x)))
    return do.near_or_far(x, _BOUND, _SERIES, far)


def _far(do: Arithmetic, x: ir.Value) -> ir.Value:
    """log 2 + log(x·(½ + ½·√(1 + 1/x²))): neither x² nor 2x, which fp16 cannot hold for large x."""
    clipped = do("Max", x, _BOUND)
    inverse = do("Reciprocal", clipped)
    root = do("Sqrt", do("Add", do("Mul", inverse, inverse), 1.0))
    half_sum = do("Mul", clipped, do("Add", do("Mul", root, 0.5), 0.5))
    return do("Add", do("Log", half_sum), math.log(2))
