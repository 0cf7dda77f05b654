"""FastGelu becomes the tanh form of GELU, which the provider fuses again.

x ──► FastGelu(·, bias) ──► y        t = x + bias;  ½·t·(1 + tanh(√(2/π)·(t + 0.044715·t³)))
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.float_function import Arithmetic
from hexport.rewrite.opset import opset_version
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import is_float

_FIRST_OPSET_WITH_GELU = 20


class FastGeluToTanh(Rule):
    cures: ClassVar[frozenset[str]] = frozenset({"FastGelu"})

    def __init__(self) -> None:
        super().__init__()
        self._bias: ir.Value | None = None
        self._has_gelu = False

    def pattern(self, op: Any, x: Any) -> Any:
        return op.FastGelu(x, _domain="com.microsoft", _allow_other_inputs=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        result = MatchResult()
        if not is_float(x):
            return result.fail("the element type is not float32 or float16", x)
        inputs = context.root.inputs
        self._bias = inputs[1] if len(inputs) > 1 else None
        self._has_gelu = opset_version(context) >= _FIRST_OPSET_WITH_GELU
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        t = x if self._bias is None else op.Add(x, self._bias)
        if self._has_gelu:
            return op.Gelu(t, approximate="tanh")
        do = Arithmetic(op, x)
        cube = do("Mul", do("Mul", t, t), t)
        inner = do("Mul", do("Add", t, do("Mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        return do("Mul", do("Mul", t, do("Add", do("Tanh", inner), 1.0)), 0.5)
