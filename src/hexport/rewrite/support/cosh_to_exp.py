"""Cosh becomes the mean of two exponentials.

x ──► Cosh ──► y        x ──┬─► Exp ───────────► Add ──► Mul(½) ──► y
                            └─► Neg ──► Exp ──────┘
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.float_function import Arithmetic, FloatFunctionRule


class CoshToExp(FloatFunctionRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Cosh"})
    op_type: ClassVar[str] = "Cosh"

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        return do("Mul", do("Add", do.exp(x), do.exp(do("Neg", x))), 0.5)
