"""The type of every tensor of a model, so that the model can be cut at any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from hexport.backend.calling import MODULE, call
from hexport.backend.requests import ShapesReply, ShapesRequest
from hexport.faultfinding.saving import save_for_worker
from hexport.model import dtypes
from hexport.records import from_plain
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.exposing import exposing
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker, WorkerError

Dims = tuple[int | str | None, ...]

_DTYPES = {dtypes.from_number(int(dtype)): dtype for dtype in ir.DataType}


@dataclass(frozen=True)
class TensorType:
    """Element type and dims; ``dims`` is None when even the rank is unknown."""

    dtype: ir.DataType
    dims: Dims | None

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape, if every dim is a number."""
        if self.dims is None:
            return None
        numbers = tuple(dim for dim in self.dims if isinstance(dim, int))
        return numbers if len(numbers) == len(self.dims) else None


def infer_types(model: ir.Model, *, limits: Limits | None = None) -> dict[str, TensorType]:
    """By ONNX's own inference, and by ONNX Runtime's where it can load the model, which stays as it is."""
    copy = model.clone()
    infer_shapes(copy)
    types: dict[str, TensorType] = {}
    for value in (*copy.graph.inputs, *(value for node in copy.graph for value in node.outputs)):
        found = _declared(value)
        if value.name and found is not None:
            types[value.name] = found
    # It folds shape arithmetic, and knows operators that are not of the standard.
    for name, better in _by_runtime(model, limits).items():
        if name not in types or types[name].fixed is None:
            types[name] = better
    return types


def _declared(value: ir.Value) -> TensorType | None:
    if not isinstance(value.type, ir.TensorType):
        return None
    if value.shape is None:
        return TensorType(value.type.dtype, None)
    return TensorType(value.type.dtype, tuple(_dim(dim) for dim in value.shape))


def _dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _by_runtime(model: ir.Model, limits: Limits | None) -> Mapping[str, TensorType]:
    with temporary_folder() as folder:
        path = folder / "exposed.onnx"
        names = [str(value.name) for node in model.graph for value in node.outputs if value.name]
        save_for_worker(exposing(model, names), path)
        try:
            with Worker(MODULE, folder / "native.log", limits=limits) as worker:
                reply = from_plain(ShapesReply, call(worker, "infer_shapes", ShapesRequest(str(path), "")))
        except WorkerError:
            return {}  # what ONNX infers has to do: the model may be one that only the NPU can load
    found = {}
    for tensor in reply.tensors:
        dtype = _DTYPES.get(dtypes.from_runtime(tensor.dtype))
        if dtype is not None:
            found[tensor.name] = TensorType(dtype, tensor.shape)
    return found
