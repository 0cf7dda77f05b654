"""New constants in a graph."""

from __future__ import annotations

import onnx_ir as ir


def add_initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """``tensor`` as an initializer; its name is made unique."""
    while name in graph.initializers:
        name += "_"
    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=name, const_value=tensor, shape=shape, type=ir.TensorType(tensor.dtype))
    graph.register_initializer(value)
    return value
