"""Cutting pieces out of a model: some of its nodes, what they lack becomes inputs or constants.

A value that does not depend on what is fed (shape arithmetic, dequantised weights) is put in as the constant
it is: as an input it would make the shapes behind it dynamic, and the piece something else than it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.faultfinding.tensor_types import TensorType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Cuttable:
    """A model whose nodes can be taken in any choice. The model itself is never changed."""

    def __init__(
        self,
        model: ir.Model,
        types: Mapping[str, TensorType],
        known: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> None:
        self._model = model
        self._types = types
        self._known = known or {}
        self.nodes = tuple(node for node in model.graph if not is_constant(node))
        """All but Constants, which come along with whoever needs them."""
        self._named_dims = {dim for value in model.graph.inputs for dim in _names_of_dims(value)}
        self._outputs = set(model.graph.outputs)
        self._users: dict[ir.Value, set[ir.Node]] = {}
        for node in self.nodes:
            # Whoever computes a known value needs nothing of the piece.
            if not any(value.name in self._known for value in node.outputs):
                for value in used_values(node, model.graph):
                    self._users.setdefault(value, set()).add(node)

    def piece(self, chosen: Sequence[int]) -> ir.Model | None:
        """The model made of these ``nodes``; None when a tensor it begins at has no known type."""
        nodes = [self.nodes[index] for index in chosen]
        inside = set(nodes)
        constants, needed = self._needs(nodes, inside)
        inputs = [value for value in needed if not value.is_initializer()]
        if any(value.name not in self._known and not self._can_begin_at(value) for value in inputs):
            return None
        view = ir.GraphView(
            inputs,
            self._results(nodes, inside),
            nodes=[*constants, *nodes],
            initializers=[value for value in needed if value.is_initializer()],
            opset_imports=self._model.graph.opset_imports,
            name=self._model.graph.name,
        )
        graph = view.clone()
        self._declare(graph)
        return ir.Model(
            graph,
            ir_version=self._model.ir_version or 10,
            functions=list(self._model.functions.values()),
        )

    def _needs(self, nodes: Iterable[ir.Node], inside: set[ir.Node]) -> tuple[list[ir.Node], list[ir.Value]]:
        """Constant nodes to take along, and values from outside, each once and in order."""
        constants: dict[ir.Node, None] = {}
        values: dict[ir.Value, None] = {}
        for node in nodes:
            for value in used_values(node, self._model.graph):
                producer = value.producer()
                if producer is not None and is_constant(producer):
                    constants[producer] = None
                elif producer is None or producer not in inside:
                    values[value] = None
        return list(constants), list(values)

    def _results(self, nodes: Iterable[ir.Node], inside: set[ir.Node]) -> list[ir.Value]:
        """What the rest of the model takes from these nodes, or would have shown to the user."""
        results: list[ir.Value] = []
        for node in nodes:
            named = [value for value in node.outputs if value.name]
            wanted = [
                value for value in named if value in self._outputs or self._users.get(value, set()) - inside
            ]
            used = any(self._users.get(value) for value in named)
            results += wanted if wanted or used else named[:1]
        return results

    def _can_begin_at(self, value: ir.Value) -> bool:
        found = self._types.get(value.name or "")
        if found is None or found.dims is None:
            return False
        return all(isinstance(dim, int) or dim in self._named_dims for dim in found.dims)

    def _declare(self, graph: ir.Graph) -> None:
        """Types where the cuts are; nowhere else, for the compiler also acts on what a file declares."""
        for value in list(graph.inputs):
            name = str(value.name)
            if name in self._known:
                graph.inputs.remove(value)
                value.const_value = ir.tensor(self._known[name], name=name)
                graph.register_initializer(value)
            else:
                value.dtype, value.shape = self._types[name].dtype, ir.Shape(self._types[name].dims or ())
        for value in graph.outputs:
            found = self._types.get(str(value.name))
            if found is not None:
                value.dtype = found.dtype
                if value.shape is None and found.fixed is not None:
                    value.shape = ir.Shape(found.fixed)


def is_constant(node: ir.Node) -> bool:
    """Whether it is ONNX's Constant."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def used_values(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of ``graph`` that the node takes, also those that only its bodies look at."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        bodies: Sequence[ir.Graph] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            bodies = [attribute.as_graph()]
        elif attribute.type == ir.AttributeType.GRAPHS:
            bodies = attribute.as_graphs()
        for body in bodies:
            inner = (v for n in ir.traversal.RecursiveGraphIterator(body) for v in n.inputs)
            yield from (
                value for value in (*inner, *body.outputs) if value is not None and value.graph is graph
            )


def _names_of_dims(value: ir.Value) -> Iterator[str]:
    for dim in value.shape or ():
        if isinstance(dim, ir.SymbolicDim) and dim.value:
            yield dim.value
