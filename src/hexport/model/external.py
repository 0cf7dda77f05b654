"""External data for a copy of a model that lies in another folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hexport.model.file import ExternalDataMissing, is_external, stored_tensors
from hexport.model.onnx_proto import message_class
from hexport.model.reading import Model

_FOLDER = "external_data"
LEAST_OUTSIDE = 2**16
"""Smaller tensors stay in the model: shape inference needs the values of some, and does not look outside."""


def external_bytes(model: Model) -> int:
    """How much of the model is kept in other files."""
    total = 0
    for tensor in filter(is_external, stored_tensors(model.proto)):
        entries = _entries(tensor)
        length = int(entries.get(b"length", b"0"))
        total += length or (model.path.parent / os.fsdecode(entries[b"location"])).stat().st_size
    return total


def data_files(model: Model) -> tuple[Path, ...]:
    """The files that its weights lie in, each once."""
    places = (_entries(tensor)[b"location"] for tensor in filter(is_external, stored_tensors(model.proto)))
    return tuple(model.path.parent / os.fsdecode(place) for place in dict.fromkeys(places))


def bring_along(model: Model, copy: Path) -> None:
    """Copy the data files of ``copy``, made by ``staging.py``, into a folder of their own beside it.

    Links would be cheaper, but onnx and onnx-ir refuse data behind them, since a hostile model could so
    show them any file; the user's own are refused here for the same reason.
    """
    proto = message_class("ModelProto")()
    proto.ParseFromString(copy.read_bytes())
    names: dict[bytes, str] = {}
    for tensor in filter(is_external, stored_tensors(proto)):
        location = _entries(tensor)[b"location"]
        if location not in names:
            names[location] = f"{_FOLDER}/{len(names)}"
            _copy(model.path.parent / os.fsdecode(location), copy.parent / names[location])
        for entry in tensor.external_data:
            if entry.key == b"location":
                entry.value = names[location].encode()
    if names:
        copy.write_bytes(proto.SerializeToString())


def _entries(tensor: Any) -> dict[bytes, bytes]:
    return {bytes(entry.key): bytes(entry.value) for entry in tensor.external_data}


def _copy(source: Path, target: Path) -> None:
    if source.stat().st_nlink > 1:
        raise ExternalDataMissing(
            f"the data file {source} has several hard links, which onnx does not follow",
            why="behind a link any file could stand",
            next=f"make it a file of its own: cp '{source}' '{source}.own' && mv '{source}.own' '{source}'",
        )
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
