"""Identity nodes go, but for those without which a graph cannot give out a value."""

from __future__ import annotations

import onnx_ir as ir


def remove_identities(model: ir.Model) -> None:
    """Remove every Identity that only names a value anew.

    onnx-ir's own pass also takes those through which a branch gives out a value from around it, and leaves
    what is no ONNX.
    """
    for graph in model.graphs():
        for node in list(graph):
            if (node.domain, node.op_type) == ("", "Identity") and _pass_on(node, graph):
                graph.remove(node, safe=True)


def _pass_on(node: ir.Node, graph: ir.Graph) -> bool:
    """Let all that read the result read the source; False where the node is needed."""
    source, (result,) = node.inputs[0], node.outputs
    if source is None:
        return False
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
    name = result.name if result.is_graph_output() else None
    source.type, source.shape = source.type or result.type, source.shape or result.shape
    result.replace_all_uses_with(source, replace_graph_outputs=True)
    if name is not None:
        result.name, source.name = None, name  # outputs are known by their names
    return True
