"""An ONNX model of one EPContext node, which calls one graph of a context binary.

    inputs ──► EPContext("model.bin", graph) ──► outputs

Written with protobuf alone, so that the core install can do it. Names, types and shapes are the binary's own:
the provider matches inputs and outputs by name, and guesses by position, with a warning, when names differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexport.backend.context_binary import ContextGraph, ContextTensor
from hexport.errors import HexportError
from hexport.model.labels import COMPILED_OP
from hexport.model.onnx_proto import message_class

_INT, _STRING = 2, 3
_IR_VERSION, _OPSET = 8, 17
"""Old enough for every ONNX Runtime that has EPContext nodes with graphs by name (1.17 and later)."""
# QNN's types by ONNX's numbers. Quantised tensors are plain integers to ONNX.
ONNX_TYPES = {
    "float32": 1, "ufixed8": 2, "uint8": 2, "sfixed8": 3, "int8": 3, "ufixed16": 4, "uint16": 4,
    "sfixed16": 5, "int16": 5, "sfixed32": 6, "int32": 6, "int64": 7, "bool8": 9, "float16": 10,
    "float64": 11, "ufixed32": 12, "uint32": 12, "uint64": 13,
}  # fmt: skip


class CannotWrap(HexportError, ValueError):
    """A context binary holds what an ONNX model cannot call."""

    code = "HX651"


def call_of(
    graph: ContextGraph, binary: str, *, build_id: str, multi_soc: bool, metadata: Mapping[str, str]
) -> bytes:
    """The model's file; ``binary`` is the name of the binary's file beside it."""
    model = message_class("ModelProto")(ir_version=_IR_VERSION, producer_name=b"hexport")
    model.opset_import.add(domain=b"", version=_OPSET)
    model.opset_import.add(domain=b"com.microsoft", version=1)
    for key, text in metadata.items():
        model.metadata_props.add(key=key.encode(), value=text.encode())
    model.graph.name = graph.name.encode()
    node = model.graph.node.add(
        # Before partition_name there was only the node's name to find the graph by.
        name=graph.name.encode(),
        op_type=COMPILED_OP.encode(),
        domain=b"com.microsoft",
        input=[tensor.name.encode() for tensor in graph.inputs],
        output=[tensor.name.encode() for tensor in graph.outputs],
    )
    attributes: dict[str, int | str] = {
        "main_context": 1,
        "embed_mode": 0,
        "ep_cache_context": binary,
        "ep_sdk_version": build_id,
        "partition_name": graph.name,
        "source": "QNNExecutionProvider",
        "is_multi_soc_ep_context": int(multi_soc),
    }
    for name, value in attributes.items():
        if isinstance(value, int):
            node.attribute.add(name=name.encode(), i=value, type=_INT)
        else:
            node.attribute.add(name=name.encode(), s=value.encode(), type=_STRING)
    for values, tensors in ((model.graph.input, graph.inputs), (model.graph.output, graph.outputs)):
        for tensor in tensors:
            _declare(values.add(name=tensor.name.encode()), graph, tensor)
    data: bytes = model.SerializeToString()
    return data


def _declare(value: Any, graph: ContextGraph, tensor: ContextTensor) -> None:
    if tensor.dtype not in ONNX_TYPES:
        raise CannotWrap(
            f"graph {graph.name!r} has {tensor.name!r} of type {tensor.dtype}",
            why="ONNX Runtime passes no tensors of that type to the provider",
            next="convert the model with 8- or 16-bit inputs and outputs",
        )
    value.type.tensor_type.elem_type = ONNX_TYPES[tensor.dtype]
    value.type.tensor_type.shape.SetInParent()
    for size in tensor.shape:
        value.type.tensor_type.shape.dim.add(dim_value=size)
