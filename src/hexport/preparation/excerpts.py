"""A run of nodes as a model of its own, with the CPU's values at its borders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.rewrite.values import constant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


@dataclass(frozen=True)
class Excerpt:
    """A model, what to feed it, and what the CPU makes of that inside the whole model."""

    model: ir.Model
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]


def excerpt(model: ir.Model, nodes: Sequence[ir.Node], tensors: Mapping[str, Array]) -> Excerpt | None:
    """These nodes, which follow each other in the main graph; None where a value at a border is unknown."""
    inputs, outputs = _borders(nodes)
    names = [str(value.name) for value in (*inputs, *outputs)]
    if not outputs or any(name not in tensors for name in names):
        return None
    graph = ir.convenience.extract(model.graph, inputs, outputs)
    arrays = {name: tensors[name] for name in names}
    for value in (*graph.inputs, *graph.outputs):
        array = arrays[str(value.name)]
        value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        value.shape = ir.Shape(array.shape)
    part = ir.Model(graph, ir_version=model.ir_version)
    return Excerpt(
        part,
        {str(value.name): arrays[str(value.name)] for value in inputs},
        {str(value.name): arrays[str(value.name)] for value in outputs},
    )


def _borders(nodes: Sequence[ir.Node]) -> tuple[list[ir.Value], list[ir.Value]]:
    """What comes in but is not constant, and what is used outside."""
    inside = set(nodes)
    inputs: dict[ir.Value, None] = {}
    outputs: list[ir.Value] = []
    for node in nodes:
        for value in used_by(node):
            if value.producer() not in inside and constant(value) is None:
                inputs[value] = None
        for value in node.outputs:
            outside = any(user not in inside for user, _ in value.uses())
            if value.name and constant(value) is None and (outside or value.is_graph_output()):
                outputs.append(value)
    return list(inputs), outputs


def used_by(node: ir.Node) -> list[ir.Value]:
    """What a node reads, the bodies it has included."""
    values = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        bodies: Sequence[ir.Graph] = ()
        if attribute.type is ir.AttributeType.GRAPH:
            bodies = (attribute.as_graph(),)
        elif attribute.type is ir.AttributeType.GRAPHS:
            bodies = attribute.as_graphs()
        for inner in (inner for body in bodies for inner in ir.traversal.RecursiveGraphIterator(body)):
            values += [v for v in inner.inputs if v is not None and v.graph is node.graph]
    return list(dict.fromkeys(values))
