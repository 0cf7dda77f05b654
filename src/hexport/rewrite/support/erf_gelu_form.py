"""Recognising x·½·(1 + erf(x/√2)) in whatever order its additions and multiplications were written.

Every value between the Erf and the end is a sum of four terms, 1, x, e = erf(x/√2) and x·e; it is followed
by its four coefficients. The end is a GELU when it comes out as a·x + a·x·e.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from hexport.rewrite.values import scalar

_CLOSE = 1e-3
"""Exporters write √2 with as few as four digits."""
_DEEPEST = 4
"""Steps between the Erf and the end of the form: at most Mul, Add, Mul, Mul."""

Terms = tuple[float, float, float, float]
"""Coefficients of 1, x, e and x·e."""


@dataclass(frozen=True)
class Gelu:
    """``factor`` · Gelu(``x``)."""

    x: ir.Value
    factor: float


def gelu_ending_at(node: ir.Node) -> Gelu | None:
    """The GELU that this Mul is the end of, if it is one."""
    if node.op_type != "Mul":
        return None
    for erf in _erfs_above(node, _DEEPEST):
        for x, sign in _arguments(erf):
            terms = _terms(node.outputs[0], x, erf.outputs[0], _DEEPEST)
            if terms is None:
                continue
            rest, a, lone_erf, b = terms
            # What must be 0 is exactly 0: the coefficients are sums and products of few constants.
            if a != 0 and rest == lone_erf == 0 and math.isclose(a, sign * b, rel_tol=_CLOSE):
                return Gelu(x, 2 * a)
    return None


def is_in_gelu(erf: ir.Node) -> bool:
    """Whether some Mul below this Erf is the end of a GELU that has not been fused yet."""
    return any(gelu_ending_at(node) is not None and is_used(node) for node in _below(erf, _DEEPEST))


def is_used(node: ir.Node, depth: int = _DEEPEST) -> bool:
    """False for what a fusion left behind, which stays until the rules are done: it ends within the form."""
    return depth == 0 or any(
        value.is_graph_output() or any(is_used(user, depth - 1) for user in value.consumers())
        for value in node.outputs
    )


def _arguments(erf: ir.Node) -> Iterator[tuple[ir.Value, int]]:
    """Each x and sign for which the Erf is of ±x/√2: there are two when x is itself a Neg."""
    value, factor = erf.inputs[0], 1.0
    for _ in range(3):  # a scale and a Neg at most stand before x
        if value is not None and math.isclose(abs(factor), math.sqrt(0.5), rel_tol=_CLOSE):
            yield value, 1 if factor > 0 else -1
        scaled = _scaled(value)
        if scaled is None:
            return
        value, factor = scaled[0], factor * scaled[1]


def _scaled(value: ir.Value | None) -> tuple[ir.Value, float] | None:
    """The value and the number whose product this one is."""
    node = value.producer() if value is not None else None
    if node is None or (inputs := _inputs(node)) is None:
        return None
    if node.op_type == "Neg":
        return inputs[0], -1.0
    if node.op_type == "Div" and (divisor := scalar(inputs[1])):
        return inputs[0], 1 / divisor
    if node.op_type == "Mul":
        for one, other in (inputs, inputs[::-1]):
            if (factor := scalar(other)) is not None:
                return one, factor
    return None


def _terms(value: ir.Value, x: ir.Value, erf: ir.Value, depth: int) -> Terms | None:
    if value is x:
        return 0.0, 1.0, 0.0, 0.0
    if value is erf:
        return 0.0, 0.0, 1.0, 0.0
    if (known := scalar(value)) is not None:
        return known, 0.0, 0.0, 0.0
    node = value.producer()
    if node is None or depth == 0 or (inputs := _inputs(node)) is None:
        return None
    parts = [_terms(i, x, erf, depth - 1) for i in inputs]
    if any(part is None for part in parts):
        return None
    return _combined(node.op_type, [part for part in parts if part is not None])


def _combined(op_type: str, parts: list[Terms]) -> Terms | None:
    first, second = parts[0], parts[-1]
    match op_type:
        case "Identity":
            return first
        case "Neg":
            return _times(first, (-1.0, 0.0, 0.0, 0.0))
        case "Add" | "Sub":
            sign = 1.0 if op_type == "Add" else -1.0
            return (
                first[0] + sign * second[0],
                first[1] + sign * second[1],
                first[2] + sign * second[2],
                first[3] + sign * second[3],
            )
        case "Mul":
            return _times(first, second)
        case "Div" if second[0] != 0 and not any(second[1:]):
            return _times(first, (1 / second[0], 0.0, 0.0, 0.0))
    return None


def _times(a: Terms, b: Terms) -> Terms | None:
    """None where x² or e² would come out, which is no GELU."""
    with_x = any((a[1], a[3])) and any((b[1], b[3]))
    with_e = any((a[2], a[3])) and any((b[2], b[3]))
    if with_x or with_e:
        return None
    return (
        a[0] * b[0],
        a[0] * b[1] + a[1] * b[0],
        a[0] * b[2] + a[2] * b[0],
        a[0] * b[3] + a[3] * b[0] + a[1] * b[2] + a[2] * b[1],
    )


def _inputs(node: ir.Node) -> list[ir.Value] | None:
    inputs = [i for i in node.inputs if i is not None]
    return inputs if len(inputs) == len(node.inputs) and inputs else None


def _erfs_above(node: ir.Node, depth: int) -> Iterator[ir.Node]:
    for value in node.inputs:
        above = value.producer() if value is not None else None
        if above is None:
            continue
        if above.op_type == "Erf":
            yield above
        elif depth > 1 and above.op_type in ("Mul", "Div", "Add", "Sub", "Neg", "Identity"):
            yield from _erfs_above(above, depth - 1)


def _below(node: ir.Node, depth: int) -> Iterator[ir.Node]:
    for user in node.outputs[0].consumers():
        yield user
        if depth > 1:
            yield from _below(user, depth - 1)
