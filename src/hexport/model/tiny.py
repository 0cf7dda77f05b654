"""A model small enough to build by hand, with answers known beforehand: does a backend compute at all?

x ──► Add(·, ADDENDS) ──► Relu ──► y
"""

from __future__ import annotations

import struct

from hexport.model.onnx_proto import message_class

ADDENDS = (-3.0, -1.5, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0)
ANSWERS_FOR_ONES = tuple(max(0.0, 1.0 + addend) for addend in ADDENDS)
"""Exact in fp16, and no two neighbours alike above zero, so that no constant passes for an answer."""

_FLOAT = 1
_RAW_DATA = b"\x4a"
"""The wire tag of TensorProto.raw_data (field 9, bytes), which ``onnx_proto`` has no need to declare."""


def tiny_model() -> bytes:
    """The model's file."""
    model = message_class("ModelProto")(ir_version=8, producer_name=b"hexport")
    model.opset_import.add(version=17)
    graph = model.graph
    graph.name = b"tiny"
    addends = graph.initializer.add(name=b"addends", data_type=_FLOAT, dims=[1, len(ADDENDS)])
    raw = struct.pack(f"<{len(ADDENDS)}f", *ADDENDS)
    addends.MergeFromString(_RAW_DATA + bytes([len(raw)]) + raw)
    graph.node.add(name=b"add", op_type=b"Add", input=[b"x", b"addends"], output=[b"sum"])
    graph.node.add(name=b"relu", op_type=b"Relu", input=[b"sum"], output=[b"y"])
    for values, name in ((graph.input, b"x"), (graph.output, b"y")):
        tensor = values.add(name=name).type.tensor_type
        tensor.elem_type = _FLOAT
        for size in (1, len(ADDENDS)):
            tensor.shape.dim.add(dim_value=size)
    data: bytes = model.SerializeToString()
    return data
