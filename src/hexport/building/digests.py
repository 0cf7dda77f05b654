"""Contents as names: samples, and files, each of which is read once in a build."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.model import Model, read
from hexport.model.digests import digest_of, files_of
from hexport.storage import file_digest
from hexport.storage.store import listed_digests

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample

_ABOUT = ".json"
"""Files in a kept folder that tell of the model, and are not part of it."""


def samples_digest(samples: Sequence[Sample]) -> str:
    """Names, types, shapes and numbers."""
    total = hashlib.sha256()
    for sample in samples:
        for name, array in sorted(sample.items()):
            total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


class Digests:
    """SHA-256 of what a build works with. The store has just compared its own files with theirs."""

    def __init__(self) -> None:
        self._kept: dict[Path, dict[str, str]] = {}
        self._files: dict[Path, str] = {}
        self._models: dict[Path, str] = {}

    def note_kept(self, folder: Path) -> None:
        """``folder`` comes from the store."""
        if folder not in self._kept:
            self._kept[folder] = listed_digests(folder)

    def of_file(self, path: Path) -> str:
        """Of one file."""
        known = self._kept.get(path.parent, {}).get(path.name) or self._files.get(path)
        if known is None:
            known = self._files[path] = file_digest(path)
        return known

    def of_model(self, model: Model | Path) -> str:
        """Of a model's files, one after the other."""
        path = model if isinstance(model, Path) else model.path
        kept = self._kept.get(path.parent)
        if kept is not None and all(name == path.name or name.endswith(_ABOUT) for name in kept):
            return kept[path.name]  # there is no other file that its weights could lie in
        if path not in self._models:
            opened = read(path) if isinstance(model, Path) else model
            alone = len(files_of(opened)) == 1
            self._models[path] = self.of_file(path) if alone else digest_of(opened)
        return self._models[path]
