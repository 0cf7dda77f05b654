"""Reading a model: its graph as typed records.

Node names become unique here: ONNX allows unnamed and twice-named nodes, but the backend answers by
name. An unnamed Conv at position 12 is called ``Conv#12``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.model import dtypes
from hexport.model.file import NotOnnx, bodies, load, nodes
from hexport.model.graph import Dim, Graph, Node, TensorType
from hexport.model.inlining import inline
from hexport.model.soundness import check_soundness

_INT, _FLOAT, _STRING, _INTS = 2, 1, 3, 7
_FIRST_WITH_DEFAULTS = 4
"""Files of an older IR list every weight as an input, and mean constants."""


@dataclass(frozen=True)
class Model:
    """A model as the user brought it."""

    path: Path
    graph: Graph
    opsets: dict[str, int]
    producer: str
    defaults: tuple[str, ...]
    """Inputs that have a value of their own, which a caller may replace."""
    proto: Any
    """The parsed ModelProto, functions written out, with unique node names; for ``staging.py`` only."""


def read(path: Path, *, any_operator: bool = False) -> Model:
    """Read and look over a model file, or raise a :class:`ModelError` that says what is wrong.

    ``any_operator`` for models whose operators come with a library.
    """
    proto = load(path)
    try:
        inline(proto)
        _make_names_unique(proto.graph)
        graph = _graph(proto.graph)
        functions = frozenset((_text(f.domain), _text(f.name)) for f in proto.functions)
        opsets = {_text(o.domain) or "ai.onnx": o.version for o in proto.opset_import}
        producer = f"{_text(proto.producer_name)} {_text(proto.producer_version)}".strip()
    except (UnicodeDecodeError, RecursionError) as error:
        raise NotOnnx(
            f"{path} is not a sound ONNX model", why=str(error), next="export or download the model again"
        ) from error
    check_soundness(path, graph, functions, any_operator=any_operator)
    defaults = tuple(_text(v.name) for v in proto.graph.input if _text(v.name) in graph.constants)
    if proto.ir_version < _FIRST_WITH_DEFAULTS:
        defaults = ()
    return Model(path, graph, opsets, producer, defaults, proto)


def _make_names_unique(graph: Any) -> None:
    taken: set[bytes] = set()
    rename: list[tuple[int, Any]] = []
    for position, node in enumerate(nodes(graph)):
        if node.name and node.name not in taken:
            taken.add(node.name)
        else:
            rename.append((position, node))
    for position, node in rename:
        name = (node.name or node.op_type) + b"#%d" % position
        while name in taken:
            name += b"'"
        taken.add(name)
        node.name = name


def _graph(graph: Any) -> Graph:
    constants = {_text(t.name): _tensor(t) for t in graph.initializer}
    constants |= {
        _text(s.values.name): TensorType(dtypes.from_number(s.values.data_type), tuple(s.dims))
        for s in graph.sparse_initializer
    }
    own_nodes = tuple(_node(node) for node in graph.node)
    for proto, node in zip(graph.node, own_nodes, strict=True):
        if node.op == "Constant" and node.outputs:
            stored = [a.t for a in proto.attribute if a.HasField("t")]
            constants[node.outputs[0]] = _tensor(stored[0]) if stored else TensorType("undefined", None)
    inputs = {_text(v.name): _value(v) for v in graph.input if _text(v.name) not in constants}
    return Graph(own_nodes, inputs, {_text(v.name): _value(v) for v in graph.output}, constants)


def _node(node: Any) -> Node:
    attributes = {_text(a.name): _attribute(a) for a in node.attribute}
    return Node(
        name=_text(node.name),
        op=_text(node.op_type),
        domain=_text(node.domain),
        inputs=tuple(_text(name) for name in node.input),
        outputs=tuple(_text(name) for name in node.output),
        attributes={name: value for name, value in attributes.items() if value is not None},
        bodies=tuple(_graph(body) for a in node.attribute for body in bodies(a)),
    )


_ATTRIBUTE_VALUES: dict[int, Callable[[Any], int | float | bytes | tuple[int, ...]]] = {
    _INT: lambda a: int(a.i),
    _FLOAT: lambda a: float(a.f),
    _STRING: lambda a: bytes(a.s),
    _INTS: lambda a: tuple(a.ints),
}


_NOT_TENSORS = {
    "sequence_type": "sequence",
    "map_type": "map",
    "optional_type": "optional",
    "sparse_tensor_type": "sparse tensor",
}


def _attribute(attribute: Any) -> int | float | bytes | tuple[int, ...] | None:
    reader = _ATTRIBUTE_VALUES.get(attribute.type)
    return reader(attribute) if reader else None


def _tensor(tensor: Any) -> TensorType:
    return TensorType(dtypes.from_number(tensor.data_type), tuple(tensor.dims))


def _value(value: Any) -> TensorType:
    if not value.HasField("type") or not value.type.HasField("tensor_type"):
        kinds = (kind for kind in _NOT_TENSORS if value.HasField("type") and value.type.HasField(kind))
        return TensorType(_NOT_TENSORS.get(next(kinds, ""), "undefined"), None)
    tensor = value.type.tensor_type
    shape = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return TensorType(dtypes.from_number(tensor.elem_type), shape)


def _dim(dim: Any) -> Dim:
    if dim.HasField("dim_param") and dim.dim_param:
        return _text(dim.dim_param)
    # Exporters write "unknown" as no value, as 0 (TorchScript) or as −1 (Paddle).
    if dim.HasField("dim_value") and dim.dim_value > 0:
        return int(dim.dim_value)
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8")
