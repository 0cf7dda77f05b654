"""The graphs of a DLC: a FlatBuffer without a public description.

The numbers of its fields were found by measuring: graphs of known operators, tensors and quantisation were
written by SDK 2.47 and 2.51 (``tests/test_compile_dlc.py`` does it again).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hexport.inspection.flatbuffer import NotAFlatbuffer, Table, number_at, root
from hexport.inspection.section import TensorInfo

_PREFIX = 8
_MAGIC = int.from_bytes(b"NETD", "little")
_INPUT, _OUTPUT = 0, 1
_UNDEFINED = 0x7FFFFFFF
_KINDS = ("int", "uint", "float", "sfixed", "ufixed", "bool")
# graph: name, nodes, tensors; node: name, operator
_NAME, _NODES, _TENSORS, _OPERATOR = 0, 1, 2, 1
# tensor: name, role, dims, encoding, type
_TENSOR_NAME, _ROLE, _DIMS, _ENCODING, _TYPE = 1, 2, 3, 5, 6
# encoding: whether it is undefined, and its scale and offset, if it has one for the whole tensor
_DEFINITION, _KIND, _VALUES, _SCALE, _OFFSET = 0, 1, 2, 3, 4
_WHOLE_TENSOR = 1


@dataclass(frozen=True)
class DlcGraph:
    """One graph: what goes in and out, and how many operators of which kind."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: Mapping[str, int]


def read_graphs(model: bytes) -> tuple[DlcGraph, ...]:
    """Every graph of the entry ``model``; none when it is of another layout."""
    try:
        if number_at("<I", model, _PREFIX + 4) != _MAGIC:
            return ()
        return tuple(_graph(table) for table in root(model[_PREFIX:]).tables(0))
    except NotAFlatbuffer:
        return ()


def _graph(table: Table) -> DlcGraph:
    tensors = [(tensor.number(_ROLE), tensor) for tensor in table.tables(_TENSORS)]
    return DlcGraph(
        table.text(_NAME),
        tuple(_tensor(tensor) for role, tensor in tensors if role == _INPUT),
        tuple(_tensor(tensor) for role, tensor in tensors if role == _OUTPUT),
        dict(Counter(node.text(_OPERATOR) for node in table.tables(_NODES))),
    )


def _tensor(table: Table) -> TensorInfo:
    code = table.number(_TYPE)
    kind = code >> 8
    # 0x0216 is float16: the kind, then the bits as decimal digits.
    dtype = f"{_KINDS[kind]}{code & 0xFF:x}" if kind < len(_KINDS) else f"qnn_{code:#06x}"
    scale, zero_point = _encoding(table.table(_ENCODING))
    return TensorInfo(table.text(_TENSOR_NAME), dtype, tuple(table.numbers(_DIMS, "<I")), scale, zero_point)


def _encoding(table: Table | None) -> tuple[float | None, int | None]:
    """Scale and zero point, of a tensor that has one of each."""
    if table is None or table.number(_DEFINITION) == _UNDEFINED or table.number(_KIND, "<B") != _WHOLE_TENSOR:
        return None, None
    values = table.table(_VALUES)
    if values is None:
        return None, None
    # What QNN calls offset is added before scaling: the zero point with the other sign.
    (scale,) = struct.unpack("<f", struct.pack("<I", values.number(_SCALE)))
    return (scale, -values.number(_OFFSET, "<i")) if math.isfinite(scale) else (None, None)
