"""Names of nodes and tensors: plans, pins and shared weights go by them.

A count would do within one model. But the same model at another size may have a node more, and then every
later count is another one; so what a rule makes is named after what it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Container
from hashlib import blake2s

import onnx_ir as ir

_LONGEST, _STEM = 32, 12
"""Characters. What is made for something new is named after a new name, and a recurrence has long chains;
a quantised file has every name several times."""
_COUNTED_NODE, _COUNTED_VALUE = re.compile(r"node_\w+_\d+"), re.compile(r"val_\d+")
"""As onnx-ir names what comes without a name. Names that a rule gives are left."""


def name_nodes(model: ir.Model) -> None:
    """Every node of the main graph by a name of its own."""
    taken: set[str] = set()
    for node in model.graph:
        output = next((value.name for value in node.outputs if value.name), "")
        node.name = _free(node.name or f"{node.op_type}_{output}", taken)
        taken.add(node.name)


def names_in(model: ir.Model) -> frozenset[str]:
    """Of the nodes and tensors of the main graph."""
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
    return frozenset(str(named.name) for named in (*graph, *values))


def name_what_is_new(model: ir.Model, known: frozenset[str]) -> None:
    """Name tensors that were counted after the first node that reads them, and nodes after what they give;
    what is ``known`` was there before."""
    order = {node: place for place, node in enumerate(model.graph)}
    taken = set(names_in(model))

    def fresh(name: str) -> str:
        found = _free(shortened(name), taken)
        taken.add(found)
        return found

    # From the end, so that whoever reads it has its name already.
    for node in reversed(list(order)):
        for value in node.outputs:
            readers = [use for use in value.uses() if use.node in order]
            if value.name in known or not _COUNTED_VALUE.fullmatch(str(value.name)) or not readers:
                continue
            first = min(readers, key=lambda use: (order[use.node], use.idx))
            value.name = fresh(f"{first.node.name}_in{first.idx}")
        if node.name not in known and _COUNTED_NODE.fullmatch(str(node.name)):
            node.name = fresh(f"{node.op_type}_{node.outputs[0].name}")


def shortened(name: str) -> str:
    """The name, or its beginning with a digest of the whole where it is long."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_STEM]}_{blake2s(name.encode(), digest_size=4).hexdigest()}"


def _free(stem: str, taken: Container[str]) -> str:
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}.{number}"
    return name
