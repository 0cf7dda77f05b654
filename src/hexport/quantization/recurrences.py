"""Unrolled recurrences: the nodes that are one node, repeated for every step.

h₀ ─► Gemm(R) ─► gates ─► h₁ ─► Gemm(R) ─► gates ─► h₂ …      places: {Gemm, Gemm, …}, {gate, gate, …}, …

What rounding does in one step it does in every step, and the steps are hundreds: they are judged and made
more precise together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import onnx_ir as ir

from hexport.quantization.roles import weight_of

_STEPS = 4
"""Uses of one weight, one behind the other, from which on they count as steps."""
_AROUND = 2
"""How far a node's surroundings are looked at to tell its place in a step."""


def places(model: ir.Model) -> dict[str, str]:
    """The place in its step of every node of a recurrence, by the node's name."""
    found: dict[str, str] = {}
    for weight, nodes in _shared_weights(model).items():
        if len(nodes) >= _STEPS:
            inside = _between(nodes)
            if len(inside) > len(nodes):
                found |= _places_in(inside, weight)
    return found


def _shared_weights(model: ir.Model) -> dict[str, list[ir.Node]]:
    found: dict[str, list[ir.Node]] = defaultdict(list)
    for node in model.graph:
        if name := _weight_name(node):
            found[name].append(node)
    return found


def _weight_name(node: ir.Node) -> str:
    place = weight_of(node)
    value = node.inputs[place.index] if place is not None else None
    return "" if value is None else str(value.name)


def _between(nodes: list[ir.Node]) -> dict[ir.Node, None]:
    """The nodes on ways from one of ``nodes`` to another, in an order that does not change."""
    after, before = _reached(nodes, _readers), _reached(nodes, _makers)
    return {node: None for node in after if node in before}


def _reached(nodes: Iterable[ir.Node], onward: Callable[[ir.Node], list[ir.Node]]) -> dict[ir.Node, None]:
    waiting = list(nodes)
    found = dict.fromkeys(waiting)
    while waiting:
        for node in onward(waiting.pop()):
            if node not in found:
                found[node] = None
                waiting.append(node)
    return found


def _readers(node: ir.Node) -> list[ir.Node]:
    return [user for value in node.outputs for user, _ in value.uses()]


def _makers(node: ir.Node) -> list[ir.Node]:
    made = (value.producer() for value in node.inputs if value is not None)
    return [producer for producer in made if producer is not None]


def _places_in(inside: dict[ir.Node, None], weight: str) -> dict[str, str]:
    """Nodes that look the same as far as one can see from them: operator, weight, neighbours."""
    looks = {node: f"{weight} {node.op_type} {_weight_name(node)}" for node in inside}
    for _ in range(_AROUND):
        looks = {
            node: "\n".join(
                (
                    looks[node],
                    "from " + ", ".join(looks[n] for n in _makers(node) if n in looks),
                    "to " + ", ".join(sorted(looks[n] for n in _readers(node) if n in looks)),
                )
            )
            for node in inside
        }
        numbers = {look: str(number) for number, look in enumerate(dict.fromkeys(looks.values()))}
        looks = {node: f"{weight} {node.op_type} {numbers[look]}" for node, look in looks.items()}
    return {str(node.name): look for node, look in looks.items()}
