"""The GELU written with Erf becomes one Gelu, also in the forms that the provider does not fuse itself.

x ──┬─► Mul(1/√2) ──► Erf ──► Add(1) ──┐             x ──► Gelu ──► y
    └────────► Mul(½) ─────────────────┴─► Mul ──► y

The provider fuses most orders. It leaves Erf to the CPU when the half is a division by 2, when 1/√2 is the
first operand, when the sign is turned, and when something between is used elsewhere too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import number
from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.erf_gelu_form import Gelu, gelu_ending_at, is_used
from hexport.rewrite.values import is_float

_FIRST_OPSET_WITH_GELU = 20


class GeluFromErf(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"Erf"})

    def __init__(self) -> None:
        super().__init__()
        self._found: Gelu | None = None
        self._domain = ""

    def pattern(self, op: Any, a: Any, b: Any) -> Any:
        return op.Mul(a, b, _check=_is_the_end)

    def check(self, context: MatchContext, a: ir.Value, b: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        self._found = gelu_ending_at(context.root)
        if self._found is None or not is_float(self._found.x):
            return result.fail("the element type is not float32 or float16", context.root)
        y = context.root.outputs[0]
        if self._found.x.shape is None or y.shape is None or len(self._found.x.shape) != len(y.shape):
            return result.fail("a constant of higher rank gives the result more dims than x has", y)
        self._domain = "" if opset_version(context) >= _FIRST_OPSET_WITH_GELU else "com.microsoft"
        return result

    def rewrite(self, op: Any, a: ir.Value, b: ir.Value) -> Any:  # noqa: ARG002
        if self._found is None:
            return None
        gelu = op.Gelu(self._found.x, _domain=self._domain)
        if abs(self._found.factor - 1) < 1e-6:
            return gelu
        return op.Mul(gelu, number(op, self._found.factor, self._found.x))


def _is_the_end(context: MatchContext, node: ir.Node) -> bool:
    """Not a Mul inside the form: the one that multiplies it by ½ comes after and takes all."""
    del context
    if gelu_ending_at(node) is None or not is_used(node):
        return False
    users = node.outputs[0].consumers()
    return not (len(users) == 1 and gelu_ending_at(users[0]) is not None)
