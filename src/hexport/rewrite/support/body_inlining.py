"""One run of a Loop's or Scan's body, written out into the graph around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir


def size_of(body: ir.Graph) -> int:
    """How many nodes one run makes, those of bodies inside counted once."""
    return sum(node.op_type != "Constant" for node in body.all_nodes())


def inlined(body: ir.Graph, arguments: Sequence[ir.Value], before: ir.Node, prefix: str) -> list[ir.Value]:
    """A copy of ``body``, run on ``arguments``, put ``before`` a node; gives what the body gives."""
    graph = before.graph
    if graph is None:
        raise ValueError("the node is in no graph")
    copy = body.clone(allow_outer_scope_values=True)
    outputs = list(copy.outputs)
    copy.outputs.clear()
    constants = _constants(copy)
    actual_of = {
        **dict(zip(copy.inputs, arguments, strict=True)),
        **{value: node.outputs[0] for value, node in constants.items()},
    }
    for formal, actual in actual_of.items():
        formal.replace_all_uses_with(actual)
    nodes = [*constants.values(), *copy]
    copy.remove(list(copy))
    for node in nodes:
        node.name = f"{prefix}/{node.name or node.op_type}"
        for value in node.outputs:
            value.name = f"{prefix}/{value.name}" if value.name else value.name
    graph.insert_before(before, nodes)
    return [actual_of.get(value, value) for value in outputs]


def _constants(copy: ir.Graph) -> dict[ir.Value, ir.Node]:
    """The body's initializers as nodes, which need no registering; the data is shared all the same."""
    made = {}
    for value in copy.initializers.values():
        if value.const_value is not None:
            made[value] = node = ir.node("Constant", [], {"value": value.const_value})
            node.outputs[0].name = value.name
    return made


def stacked(op: Any, values: Sequence[ir.Value], axis: int, opset: int, name: str) -> ir.Value:
    """The values of all runs along a new axis."""
    if opset < 13:
        rows = [op.Unsqueeze(value, axes=[axis]) for value in values]
    else:
        axes = op.initializer(ir.tensor(np.array([axis], np.int64)), name=f"{name}.axis")
        rows = [op.Unsqueeze(value, axes) for value in values]
    result: ir.Value = op.Concat(*rows, axis=axis)
    return result
