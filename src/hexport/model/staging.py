"""A copy of the model for the backend to work on: shapes fixed, every node named once.

The user's file is never touched, and nothing else of the model changes: what the backend says of
the copy is true of the original at these sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.model.dims import Shape
from hexport.model.file import TooLarge, has_external_data
from hexport.model.onnx_proto import message_class
from hexport.model.reading import Model


@dataclass(frozen=True)
class StagedModel:
    """Files for a worker."""

    model: Path
    exposed: Path
    """The same with every tensor an output, so that ONNX Runtime tells the shapes it inferred."""
    data_folder_if_needed: str
    """Where external data is found; empty when the file holds everything itself."""


def stage(model: Model, shapes: Mapping[str, Shape], folder: Path) -> StagedModel:
    """Write the copies into ``folder``."""
    proto = message_class("ModelProto")()
    proto.CopyFrom(model.proto)
    for value in proto.graph.input:
        shape = shapes.get(value.name.decode())
        if shape is not None:
            _set_shape(value, shape)
    data_folder = str(model.path.parent.resolve()) if has_external_data(proto) else ""
    staged = StagedModel(folder / "staged.onnx", folder / "exposed.onnx", data_folder)
    _write(proto, staged.model, model)
    known = {bytes(value.name) for value in proto.graph.output}
    for name in (name for node in proto.graph.node for name in node.output):
        if name and name not in known:
            known.add(name)
            proto.graph.output.add(name=name)
    _write(proto, staged.exposed, model)
    return staged


def _set_shape(value: Any, shape: Shape) -> None:
    del value.type.tensor_type.shape.dim[:]
    for size in shape:
        value.type.tensor_type.shape.dim.add(dim_value=size)
    value.type.tensor_type.shape.SetInParent()


def _write(proto: Any, path: Path, model: Model) -> None:
    try:
        path.write_bytes(proto.SerializeToString())
    except (ValueError, MemoryError) as error:
        raise TooLarge(
            f"{model.path} cannot be written with fixed shapes",
            why=str(error),
            next="save it with external data: onnx.save(model, path, save_as_external_data=True)",
        ) from error
