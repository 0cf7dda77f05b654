"""Softplus never sees a number for which the HTP's exponential inside it wraps around.

x ──► Softplus ──► y        x ──► Clip(−88, 65504) ──► Softplus ──► y

On the HTP Softplus(−90) is −131008, where it should be 0. The upper bound is fp16's own.
"""

from __future__ import annotations

from typing import ClassVar

from hexport.rewrite.faults.clipped_input import ClippedInputRule
from hexport.rewrite.float_function import EXP_BOUND


class SoftplusInRange(ClippedInputRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Softplus"})
    op_type: ClassVar[str] = "Softplus"
    low: ClassVar[float] = -EXP_BOUND
    high: ClassVar[float] = 65504.0
