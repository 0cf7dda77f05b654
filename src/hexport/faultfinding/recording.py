"""What every tensor held when the whole model ran on the CPU: pieces get the inputs they really had."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.backend.running import run_on_cpu
from hexport.faultfinding.saving import save_for_worker
from hexport.faultfinding.tensor_types import TensorType, infer_types
from hexport.rewrite.exposing import exposing
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Arrays = Mapping[str, Array]

_CHUNK = 32_000_000
"""Numbers that one run gives back, so that memory stays bounded."""
_UNKNOWN = 1_000_000
"""What a tensor of unknown shape counts as."""


class Recording:
    """One sample's run, kept in a folder, a file a tensor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}

    def add(self, name: str, array: Array) -> None:
        import numpy as np

        # Names of tensors may hold anything, and names of files may not.
        self._files[name] = self._folder / f"{len(self._files)}.npy"
        np.save(self._files[name], array, allow_pickle=False)

    def of(self, values: Iterable[ir.Value]) -> dict[str, Array]:
        """What these tensors held."""
        import numpy as np

        names = [str(value.name) for value in values]
        return {name: np.load(self._files[name], allow_pickle=False) for name in names}

    def has(self, values: Iterable[ir.Value]) -> bool:
        """Whether all of them were recorded; sequences and the like are not."""
        return all(value.name in self._files for value in values)


def record(model: ir.Model, sample: Arrays, folder: Path, *, limits: Limits | None = None) -> Recording:
    """Run ``model`` on the CPU, without optimisations that would take tensors away."""
    recording = Recording(folder)
    for value in model.graph.inputs:
        recording.add(str(value.name), sample[str(value.name)])
    for names in _chunks(model, infer_types(model, limits=limits)):
        with temporary_folder() as temporary:
            path = temporary / "exposed.onnx"
            save_for_worker(exposing(model, names), path)
            (outputs,) = run_on_cpu(path, [sample], optimize=False, limits=limits).outputs
        for name in names:
            recording.add(name, outputs[name])
    return recording


def _chunks(model: ir.Model, types: Mapping[str, TensorType]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name in (value.name for node in model.graph for value in node.outputs):
        if not name or name not in types:
            continue
        shape = types[name].fixed
        count = _UNKNOWN if shape is None else prod(shape)
        if names and size + count > _CHUNK:
            yield names
            names, size = [], 0
        names.append(name)
        size += count
    if names:
        yield names


def save_sample(sample: Arrays, path: Path) -> None:
    """As ``--calib`` takes it: an array an input, samples first. The same arrays give the same bytes.

    ``numpy.savez`` takes names as keywords, and cannot write an input called ``file``.
    """
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in sample.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array)[np.newaxis], allow_pickle=False)
