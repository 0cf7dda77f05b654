"""Exp never sees a number for which the HTP's exponential wraps around.

x ──► Exp ──► y        x ──► Clip(±88) ──► Exp ──► y

On the HTP exp(−90) is −131008 and exp(100) is 0. What the Clip changes is below 1e-38 or above 1e38.
"""

from __future__ import annotations

from typing import ClassVar

from hexport.rewrite.faults.clipped_input import ClippedInputRule
from hexport.rewrite.float_function import EXP_BOUND


class ExpInRange(ClippedInputRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Exp"})
    op_type: ClassVar[str] = "Exp"
    low: ClassVar[float] = -EXP_BOUND
    high: ClassVar[float] = EXP_BOUND
