"""The GELU written with Tanh becomes one Gelu.

x ──► ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) ──► y          x ──► Gelu ──► y

Eight roundings become one. Before opset 20 only the exact GELU is one operator, which is within 5e-4.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import MICROSOFT, NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar

_FIRST_OPSET_WITH_GELU = 20
_CLOSE = 1e-3
_DEEPEST = 6

Powers = dict[int, float]
"""A polynomial in x: power → coefficient."""


class GeluFromTanh(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Tanh"})
    op_type: ClassVar[str] = "Mul"

    def concerns(self, node: ir.Node) -> bool:
        return _gelu_of(node) is not None

    def why_not(self) -> str:
        value = _gelu_of(self.node)
        if not is_float(value):
            return "the element type is not float32 or float16"
        if value is None or value.shape is None or value.shape != self.node.outputs[0].shape:
            return "a constant gives the result another shape, or it is not known"
        return ""

    def replace(self, op: Any) -> Any:
        value = _gelu_of(self.node)
        if self.opset >= _FIRST_OPSET_WITH_GELU:
            return op.Gelu(value, approximate="tanh")
        return op.Gelu(value, _domain=MICROSOFT)


def _gelu_of(node: ir.Node) -> ir.Value | None:
    """The x, if the node is the last product of a GELU: the gate and x are found among its factors."""
    factors = _factors(node.outputs[0], _DEEPEST)
    gates = [factor for factor in factors if _gate_argument(factor) is not None]
    if len(gates) != 1:
        return None
    rest = [factor for factor in factors if factor is not gates[0]]
    values = [factor for factor in rest if scalar(factor) is None]
    number = math.prod(scalar(factor) or 1.0 for factor in rest)
    found = _gate_argument(gates[0])
    if found is None or len(values) != 1 or not math.isclose(number * found[1], 0.5, rel_tol=_CLOSE):
        return None
    x = values[0]
    powers = _polynomial(found[0], x, _DEEPEST)
    slope = math.sqrt(2 / math.pi)
    wanted = {1: slope, 3: slope * 0.044715}
    right = powers is not None and powers.keys() == wanted.keys()
    return (
        x
        if right and powers and all(math.isclose(powers[n], c, rel_tol=_CLOSE) for n, c in wanted.items())
        else None
    )


def _factors(value: ir.Value, depth: int) -> list[ir.Value]:
    node = maker(value, "Mul") if depth else None
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return [value]
    return [factor for given in node.inputs if given is not None for factor in _factors(given, depth - 1)]


def _gate_argument(value: ir.Value) -> tuple[ir.Value, float] | None:
    """What tanh is taken of, and c, if the value is c·(1 + tanh)."""
    node = maker(value, "Add")
    for one, other in (node.inputs, node.inputs[::-1]) if node is not None else ():
        number = scalar(other)
        parts = _factors(one, 2) if one is not None and number else []
        tanhs = [tanh for part in parts if (tanh := maker(part, "Tanh")) is not None]
        height = math.prod(scalar(part) or 1.0 for part in parts)
        lone = len(tanhs) == 1 and sum(scalar(part) is None for part in parts) == 1
        if (
            lone
            and number
            and math.isclose(height, number, rel_tol=_CLOSE)
            and tanhs[0].inputs[0] is not None
        ):
            return tanhs[0].inputs[0], number
    return None


def _polynomial(value: ir.Value, x: ir.Value, depth: int) -> Powers | None:
    """The value as a polynomial in x, if it is made of x by sums, products and powers."""
    if value is x:
        return {1: 1.0}
    if (known := scalar(value)) is not None:
        return {0: known}
    node = maker(value, "Add", "Mul", "Pow") if depth else None
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first = _polynomial(node.inputs[0], x, depth - 1)
    second = _polynomial(node.inputs[1], x, depth - 1)
    if first is None or second is None:
        return None
    if node.op_type == "Add":
        return {n: first.get(n, 0.0) + second.get(n, 0.0) for n in first.keys() | second.keys()}
    if node.op_type == "Pow":
        power = second.get(0, 0.0)
        return (
            {3: 1.0}
            if first == {1: 1.0} and power == 3
            else {2: 1.0}
            if first == {1: 1.0} and power == 2
            else None
        )
    product: Powers = {}
    for n, a in first.items():
        for m, b in second.items():
            product[n + m] = product.get(n + m, 0.0) + a * b
    return product
