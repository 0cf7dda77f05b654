"""Softsign becomes the division it stands for.

x ──► Softsign ──► y        x ──► Clip ──┬──────────────────► Div ──► y
                                         └─► Abs ──► Add(1) ──┘
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule

_BOUND = 8192.0
"""The HTP divides by way of the reciprocal, which is 0 to it above 16384; here y is ±1 in fp16 already."""


class SoftsignToDiv(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Softsign"})
    op_type: ClassVar[str] = "Softsign"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        clipped = do("Clip", x, -_BOUND, _BOUND)
        return do("Div", clipped, do("Add", do("Abs", clipped), 1.0))
