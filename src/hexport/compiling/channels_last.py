"""Inputs that take pictures as cameras give them, channels last: the model turns them itself.

    x [N,C,H,W] ──► Conv          x [N,H,W,C] ──► Transpose ──► Conv

The NPU computes channels last, so that ONNX Runtime turns an input of a convolution on the NPU anyway; the
two Transposes cancel, and one is saved in every inference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from hexport.errors import UsageError
from hexport.model import Graph, Model, Node, TensorType
from hexport.model.dims import Shape
from hexport.model.file import nodes
from hexport.model.onnx_proto import message_class

T = TypeVar("T")

_INTS = 7
_RANKS = (3, 4, 5)


def channels_last(model: Model, names: Collection[str]) -> Model:
    """``model`` with the inputs ``names`` turned; they must have a rank."""
    proto = message_class("ModelProto")()
    proto.CopyFrom(model.proto)
    graph = model.graph
    for name in names:
        rank = _rank(model, name)
        inner = _new_name(model.graph, name)
        axes = _to_channels_first(rank)
        _turn_proto(proto.graph, name, inner, axes)
        graph = _turn_graph(graph, name, inner, axes)
    return replace(model, graph=graph, proto=proto)


def turned_shapes(shapes: Mapping[str, Shape], names: Collection[str]) -> dict[str, Shape]:
    """The shapes as the turned model takes them."""
    return {name: _last(shape) if name in names else shape for name, shape in shapes.items()}


def _last(shape: tuple[T, ...]) -> tuple[T, ...]:
    return (shape[0], *shape[2:], shape[1])


def _to_channels_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _rank(model: Model, name: str) -> int:
    inputs = model.graph.inputs
    if name not in inputs:
        raise UsageError(
            f"--nhwc-input {name}: {model.path} has no such input", why=f"it has {', '.join(inputs)}"
        )
    shape = inputs[name].shape
    if shape is None or len(shape) not in _RANKS:
        raise UsageError(
            f"--nhwc-input {name}: only inputs of 3 to 5 dims have channels to move",
            why=f"it is {inputs[name]}",
        )
    if name in model.graph.outputs:
        raise UsageError(f"--nhwc-input {name}: the input is an output of the model, too")
    return len(shape)


def _new_name(graph: Graph, name: str) -> str:
    taken = {*graph.inputs, *graph.constants, *(o for node in graph.walk() for o in node.outputs)}
    inner = f"{name}_channels_first"
    while inner in taken:
        inner += "_"
    return inner


def _turn_proto(graph: Any, name: str, inner: str, axes: tuple[int, ...]) -> None:
    for node in nodes(graph):
        for position, read in enumerate(node.input):
            if read == name.encode():
                node.input[position] = inner.encode()
    (value,) = (value for value in graph.input if value.name == name.encode())
    dims = list(value.type.tensor_type.shape.dim)
    turned = [type(dim).FromString(dim.SerializeToString()) for dim in _last(tuple(dims))]
    del value.type.tensor_type.shape.dim[:]
    value.type.tensor_type.shape.dim.extend(turned)
    turn = message_class("NodeProto")(
        name=f"{inner}_turn".encode(), op_type=b"Transpose", input=[name.encode()], output=[inner.encode()]
    )
    turn.attribute.add(name=b"perm", type=_INTS, ints=axes)
    graph.node.insert(0, turn)


def _turn_graph(graph: Graph, name: str, inner: str, axes: tuple[int, ...]) -> Graph:
    turn = Node(f"{inner}_turn", "Transpose", "", (name,), (inner,), {"perm": axes})
    declared = graph.inputs[name]
    assert declared.shape is not None
    inputs = {**graph.inputs, name: TensorType(declared.dtype, _last(declared.shape))}
    return replace(graph, nodes=(turn, *_renamed(graph, name, inner).nodes), inputs=inputs)


def _renamed(graph: Graph, name: str, inner: str) -> Graph:
    return replace(
        graph,
        nodes=tuple(
            replace(
                node,
                inputs=tuple(inner if read == name else read for read in node.inputs),
                bodies=tuple(_renamed(body, name, inner) for body in node.bodies),
            )
            for node in graph.nodes
        ),
    )
