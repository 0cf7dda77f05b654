"""Mish becomes its parts, with an input for which the HTP's exponential inside Softplus does not wrap around.

x ──► Mish ──► y        x ──┬─────────────────────────────────────────────► Mul ──► y
                            └─► Clip(−88, 65504) ──► Softplus ──► Tanh ──────┘

On the HTP Mish(−90) is 90, where it should be 0. Behind any other operator, Mish makes a partition of its
own, and the context of the two cannot be saved.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import EXP_BOUND, Arithmetic, FloatFunctionRule
from hexport.rewrite.rule import Purpose

_LARGEST = 65504.0
"""fp16's own bound: there is nothing to clip above."""


class MishToSoftplus(FloatFunctionRule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"Mish"})
    op_type: ClassVar[str] = "Mish"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        clipped = do("Clip", x, -EXP_BOUND, _LARGEST)
        return do("Mul", x, do("Tanh", do("Softplus", clipped)))
