"""A model by its content: its own file, and those that its weights lie in."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hexport.model.external import data_files
from hexport.model.reading import Model, read

_PIECE = 2**20


def files_of(model: Model) -> tuple[Path, ...]:
    """The model's file, and those that its weights lie in."""
    return (model.path, *data_files(model))


def bytes_of(model: Model) -> int:
    """The size of all of them."""
    return sum(path.stat().st_size for path in files_of(model))


def digest_of(model: Model | Path) -> str:
    """SHA-256 of the model's files, one after the other: ``cat model.onnx model.data | sha256sum``."""
    total = hashlib.sha256()
    for path in files_of(read(model) if isinstance(model, Path) else model):
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
    return total.hexdigest()
