"""FusedConv and FusedGemm, which ONNX Runtime saves when it optimises, become their two or three parts.

x ──► FusedConv(activation=Relu) ──► y          x ──► Conv ──► (Add z) ──► Relu ──► y
w, b, z ──┘                                     w, b ──┘
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.pieces import filled
from hexport.rewrite.values import is_float

_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}
_PLAIN = frozenset({"", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"})


class FusedConvApart(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"FusedConv"})
    op_type: ClassVar[str] = "FusedConv"
    domain: ClassVar[str] = MICROSOFT

    def why_not(self) -> str:
        name = self.text_attribute("activation", "")
        if name not in _PLAIN and name not in _PARAMETERS and name != "Clip":
            return f"its activation is {name}"
        return "" if is_float(self.required(1)) else "the weight is not known to be float"

    def replace(self, op: Any) -> Any:
        inputs = [value for value in self.node.inputs[:3] if value is not None]
        y = op.Conv(*inputs, **self.without("activation"))
        if (added := self.input(3)) is not None:
            y = op.Add(y, added)
        numbers = list(self.node.attributes.get_floats("activation_params", []))
        return self.activated(op, y, numbers)

    def activated(self, op: Any, value: ir.Value, numbers: list[float]) -> ir.Value:
        name = self.text_attribute("activation", "")
        made: ir.Value
        if name == "":
            return value
        if name == "Clip":
            made = op.Clip(value, *(filled(op, number, self.required(1)) for number in numbers))
            return made
        made = getattr(op, name)(value, **dict(zip(_PARAMETERS.get(name, ()), numbers, strict=False)))
        return made

    def without(self, prefix: str) -> dict[str, ir.Attr]:
        return {name: a for name, a in self.node.attributes.items() if not name.startswith(prefix)}


class FusedGemmApart(FusedConvApart):
    cures: ClassVar[frozenset[str]] = frozenset({"FusedGemm"})
    op_type: ClassVar[str] = "FusedGemm"

    def replace(self, op: Any) -> Any:
        inputs = [value for value in self.node.inputs if value is not None]
        y = op.Gemm(*inputs, **self.without("activation"))
        named = (self.node.attributes.get_float(f"activation_{name}", None) for name in ("alpha", "beta"))
        return self.activated(op, y, [number for number in named if number is not None])
