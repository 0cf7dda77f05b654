"""Putting a context binary into a ``.pte``, with executorch's own tools, in the interpreter that has them.

Runs in a child process. The binary is not loaded for it: what is in it, the request says.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hexport.backend.context_binary import ContextTensor
from hexport.executorch.conversion.requests import MakePteRequest
from hexport.records import from_plain
from hexport.toolchain.serving import JobError, serve

_OPERATOR = "hexport_context"
"""Of the graph around the binary; it is gone when the file is written."""
# QNN's types by the names that executorch has for them.
_TYPES = {
    "float32": "FLOAT_32", "float16": "FLOAT_16", "bool8": "BOOL_8", "int8": "INT_8", "int16": "INT_16",
    "int32": "INT_32", "int64": "INT_64", "uint8": "UINT_8", "uint16": "UINT_16", "uint32": "UINT_32",
    "sfixed8": "SFIXED_POINT_8", "sfixed16": "SFIXED_POINT_16", "sfixed32": "SFIXED_POINT_32",
    "ufixed8": "UFIXED_POINT_8", "ufixed16": "UFIXED_POINT_16",
}  # fmt: skip


class _Tensor:
    """What executorch asks of a tensor of a context binary."""

    def __init__(self, tensor: ContextTensor, kinds: Any) -> None:
        name = _TYPES.get(tensor.dtype)
        if name is None:
            raise JobError("TypeUnknown", f"{tensor.name} is {tensor.dtype}")
        self._tensor, self._kind = tensor, getattr(kinds, f"QNN_DATATYPE_{name}")

    def GetName(self) -> str:  # noqa: N802 - executorch's own names
        return self._tensor.name

    def GetDataType(self) -> Any:  # noqa: N802
        return self._kind

    def GetDims(self) -> tuple[int, ...]:  # noqa: N802
        return self._tensor.shape


def make_pte(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write the file."""
    request = from_plain(MakePteRequest, arguments)
    # First what executorch loads by itself: after libQnnHtp it would crash.
    importlib.import_module("executorch.extension.pybindings.portable_lib")
    schema = importlib.import_module("executorch.backends.qualcomm.serialization.qc_schema")
    tools = importlib.import_module("executorch.backends.qualcomm.utils.utils")
    try:
        chip = schema.QcomChipset(request.soc_model)
    except ValueError as error:
        known = ", ".join(sorted(one.name for one in schema.QcomChipset if one.value))
        raise JobError("ChipUnknown", f"executorch knows: {known}") from error
    kinds = tools.PyQnnManagerAdaptor.Qnn_DataType_t
    back = [request.input_order.index(number) for number in range(len(request.inputs))]
    described = {
        "graph_name": request.graph,
        "graph_inputs": [_Tensor(tensor, kinds) for tensor in request.inputs],
        "graph_outputs": [_Tensor(tensor, kinds) for tensor in request.outputs],
        "executorch_in_order": list(request.input_order),
        "qnn_in_order": back,
        "executorch_out_order": list(request.output_order),
    }
    made = tools.from_context_binary(request.binary, _OPERATOR, chip, described)
    data: bytes = made["edge_program_manager"].to_executorch().buffer
    Path(request.output).write_bytes(data)
    return {}


if __name__ == "__main__":
    serve({"make_pte": make_pte})
