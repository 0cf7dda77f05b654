"""Nodes and constants that nothing reads go.

onnx-ir's own pass also takes optional outputs, and for those it has ONNX load the schemas of all operators,
7 MB; and where QuantizeLinear and DequantizeLinear make such an output, the NPU would leave the whole node in
float without them.
"""

from __future__ import annotations

import onnx_ir as ir


def remove_unused(graph: ir.Graph) -> None:
    """Nodes from the last to the first, then constants; not inside of branches and loops."""
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
    remove_unused_constants(graph)


def remove_unused_constants(graph: ir.Graph) -> None:
    """Initializers alone."""
    for value in list(graph.initializers.values()):
        if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
            del graph.initializers[str(value.name)]
