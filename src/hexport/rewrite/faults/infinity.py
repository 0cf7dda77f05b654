"""Whether a number is an infinity, asked in a way that the HTP answers right.

It has no infinities: a masked −∞ is −65536 after a Where, −65504 after a ReduceMax and −131008 after the
sum of two masks, and what is beyond 65504 compares false with everything. So it is brought back first.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from hexport.rewrite.literals import number
from hexport.rewrite.precision.fp16 import LARGEST

_NEARLY = 65000.0
"""Some steps of fp16 below its largest number, for what rounding on the way does."""


def is_minus_infinity(op: Any, value: ir.Value) -> ir.Value:
    """True where ``value`` is −∞, or so low that fp16 cannot tell."""
    held = op.Max(value, number(op, -LARGEST, value))
    answer: ir.Value = op.LessOrEqual(held, number(op, -_NEARLY, value))
    return answer


def is_plus_infinity(op: Any, value: ir.Value) -> ir.Value:
    """True where ``value`` is +∞, or so high that fp16 cannot tell."""
    held = op.Min(value, number(op, LARGEST, value))
    answer: ir.Value = op.GreaterOrEqual(held, number(op, _NEARLY, value))
    return answer
