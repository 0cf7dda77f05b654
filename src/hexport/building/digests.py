"""What results are kept by: the content of models, samples and frozen inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.model import Model, read
from hexport.model.external import data_files

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample

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


def samples_digest(samples: Sequence[Sample]) -> str:
    """Names, types, shapes and numbers."""
    total = hashlib.sha256()
    for sample in samples:
        for name, array in sorted(sample.items()):
            total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()
