"""How the inputs and outputs of a context binary are quantised: real = scale · (integer − zero point).

Beside ``context_binary.py``, by whose layouts it walks, because only wrapping and inspecting ask for it.
Runs in a worker only, for the same reasons.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from ctypes import byref, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.backend import context_binary as layout
from hexport.backend.context_binary import ContextRequest, read_context
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import serve

MODULE = "hexport.backend.context_encodings"
_MOST_TENSORS, _MOST_GRAPHS = 65536, 4096
# Within a tensor: whether it is defined, the kind of encoding, and for kind 0 scale and offset.
_QUANTISATION = struct.Struct("@40xIIfi")
_DEFINED, _SCALE_OFFSET = 1, 0


@dataclass(frozen=True)
class Encoding:
    """One tensor of one graph that is quantised as a whole."""

    graph: str
    tensor: str
    scale: float
    zero_point: int


@dataclass(frozen=True)
class EncodingsReply:
    encodings: tuple[Encoding, ...]


def read_encodings(arguments: dict[str, Any]) -> dict[str, Any]:
    """The worker's job: of the first binary of a multi-SoC container, whose chips have the same graphs."""
    request = from_plain(ContextRequest, arguments)
    library = request.system_library or _installed_library()
    path = Path(request.binary)
    system = layout._System(Path(library))
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    start, size = layout._sections(path, data)[0]
    section = (ctypes.c_uint8 * size).from_buffer(data, start)
    with system.context() as handle:
        info = c_void_p()
        code = system.get_metadata(handle, byref(section), size, byref(info))
        if code or not info.value:
            layout._unreadable(f"libQnnSystem refused it with code {code & 0xFFFF}")
        found = tuple(encoding for at in _graphs(info.value) for encoding in _of_graph(at))
    plain: dict[str, Any] = to_plain(EncodingsReply(found))
    return plain


def _installed_library() -> str:
    import onnxruntime_qnn

    path: str = onnxruntime_qnn.get_library_path()
    return path.replace("onnxruntime_providers_qnn", "QnnSystem")


def _graphs(address: int) -> range:
    version = layout._unpack(layout._BINARY, address)[0]
    address += layout._BINARY.size
    if version == 3:
        count, start = layout._unpack(layout._BINARY_3, address)[6:8]
    else:
        count, start = layout._unpack(layout._BINARY_1, address)[-2:]
    return layout._places(layout._GRAPH, start, count, _MOST_GRAPHS, "graphs")


def _of_graph(address: int) -> list[Encoding]:
    _, name, inputs, input_at, outputs, output_at, *_ = layout._unpack(layout._GRAPH, address)
    graph = layout._text(name, "graph name")
    found = []
    for start, count in ((input_at, inputs), (output_at, outputs)):
        for at in layout._places(layout._TENSOR, start, count, _MOST_TENSORS, "tensors"):
            defined, kind, scale, offset = layout._unpack(_QUANTISATION, at)
            if defined == _DEFINED and kind == _SCALE_OFFSET:
                tensor = layout._text(layout._unpack(layout._TENSOR, at)[2], "tensor name")
                # QNN adds its offset before it scales; ONNX subtracts its zero point.
                found.append(Encoding(graph, tensor, float(scale), -offset))
    return found


if __name__ == "__main__":
    serve({"read_context": read_context, "read_encodings": read_encodings})
