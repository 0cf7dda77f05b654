"""Division by a constant becomes multiplication by its inverse.

x ──► Div(·, c) ──► y          x ──► Mul(·, 1/c) ──► y

A small divisor is few steps of the encoding that all divisors share, and wrong by as much; its inverse is
the largest factor.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import constant, is_float


class DivToMul(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Div"})
    op_type: ClassVar[str] = "Div"

    def why_not(self) -> str:
        if not is_float(self.required(0)):
            return "it is not known to be float"
        divisor = constant(self.required(1))
        if divisor is None:
            return "the divisor is not constant"
        with np.errstate(all="ignore"):
            inverse = 1 / divisor.astype(np.float64)
        return "" if np.all(np.isfinite(inverse) & (inverse != 0)) else "the divisor has no inverse"

    def replace(self, op: Any) -> Any:
        divisor = np.asarray(constant(self.required(1)))
        return op.Mul(self.required(0), array(op, (1 / divisor.astype(np.float64)).astype(divisor.dtype)))
