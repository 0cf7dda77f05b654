"""Another float type becomes float32 throughout a model: float64, because the NPU has no such tensors at all;
float16 before quantising, because weights behind a Cast are no constants.

x ──► Cast(double) ──► Softmax ──► y: double       x ──► Softmax ──► Cast(double) ──► y: double

Unlike a rule this is a pass over the whole model: a float64 region has no form of its own, and its tensors
must change together. Inputs and outputs keep their type, by a Cast at the model's edge.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

_LARGEST = float(np.finfo(np.float32).max)
_TYPE_ATTRIBUTES = ("to", "dtype")


class ToFloat32(ir.passes.InPlacePass):
    """Changes the model in place; the result says whether there was anything to change."""

    def __init__(self, source: ir.DataType) -> None:
        super().__init__()
        self.source = source

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        changed = _keep_interface(model.graph, self.source)
        for graph in model.graphs():
            for value in list(graph.initializers.values()):
                changed |= _change_constant(value, self.source)
            for node in graph:
                changed |= _change_attributes(node, self.source)
            changed |= _retype(graph, self.source, spared={*model.graph.inputs, *model.graph.outputs})
        return ir.passes.PassResult(model, modified=changed)


def _keep_interface(graph: ir.Graph, source: ir.DataType) -> bool:
    """Casts at the edge, float32 on the inner side."""
    changed = False
    for value in graph.inputs:
        if value.dtype == source and value.uses():
            uses = list(value.uses())
            cast = _cast(value, ir.DataType.FLOAT, f"{value.name}_float")
            graph.insert_before(next(iter(graph)), cast)
            for user, position in uses:
                user.replace_input_with(position, cast.outputs[0])
            changed = True
    for position, value in enumerate(graph.outputs):
        if value.dtype == source and not value.is_graph_input() and not _is_edge(value, source):
            name, value.name = value.name, f"{value.name}_float"
            cast = _cast(value, source, str(name))
            graph.append(cast)
            graph.outputs[position] = cast.outputs[0]
            changed = True
    return changed


def _is_edge(value: ir.Value, changed: ir.DataType) -> bool:
    """Whether an output is such a Cast already."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return source is not None and source.dtype not in (None, changed)


def _cast(value: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    output = ir.Value(name=name, shape=value.shape, type=ir.TensorType(to))
    return ir.Node("", "Cast", [value], attributes=[ir.AttrInt64("to", int(to))], outputs=[output], name=name)


def _change_constant(value: ir.Value, source: ir.DataType) -> bool:
    if value.const_value is None or value.const_value.dtype != source:
        return False
    value.const_value = _changed(value.const_value)
    _make_float(value)
    return True


def _change_attributes(node: ir.Node, source: ir.DataType) -> bool:
    """Constants held in attributes, and the types that operators are told to make."""
    changed = False
    at_edge = any(output.is_graph_output() for output in node.outputs)
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == source:
            node.attributes[name] = ir.AttrTensor(name, _changed(attribute.as_tensor()))
            changed = True
        elif name in _TYPE_ATTRIBUTES and not at_edge and _names(attribute, source):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
            changed = True
    return changed


def _names(attribute: ir.Attr, source: ir.DataType) -> bool:
    return attribute.type == ir.AttributeType.INT and attribute.as_int() == int(source)


def _changed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    array = tensor.numpy().astype(np.float64)
    finite = np.where(np.isfinite(array), np.clip(array, -_LARGEST, _LARGEST), array)
    return ir.tensor(finite.astype(np.float32), name=tensor.name)


def _retype(graph: ir.Graph, source: ir.DataType, spared: set[ir.Value]) -> bool:
    changed = False
    for value in _values(graph):
        if value.dtype == source and value not in spared:
            _make_float(value)
            changed = True
    return changed


def _make_float(value: ir.Value) -> None:
    """A new type: copies of a model share the old one, and changing it would change them all."""
    value.type = ir.TensorType(ir.DataType.FLOAT)


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
