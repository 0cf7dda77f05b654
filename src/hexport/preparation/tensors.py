"""What every tensor of a model holds on one sample, in fp32 on the CPU: kept on disk, read when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.backend.calling import MODULE, call
from hexport.backend.requests import RunReply, RunRequest
from hexport.backend.sample_files import write_samples
from hexport.records import from_plain
from hexport.rewrite.exposing import exposing
from hexport.rewrite.values import constant, fixed_shape
from hexport.toolchain import Limits, Worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_CHUNK = 32_000_000
"""Numbers that one run gives back: 128 MB of float32."""
_UNKNOWN = 1_000_000
"""What a tensor of unknown shape counts as."""
_MOST = 1_000_000_000
"""Numbers kept in all; what comes after is not measured, and the nodes it belongs to are not looked at."""
_PLAIN = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.DOUBLE,
        ir.DataType.BOOL,
        ir.DataType.INT8,
        ir.DataType.INT16,
        ir.DataType.INT32,
        ir.DataType.INT64,
        ir.DataType.UINT8,
        ir.DataType.UINT16,
        ir.DataType.UINT32,
        ir.DataType.UINT64,
    }
)


class Tensors(Mapping[str, "Array"]):
    """Arrays by the tensor's name."""

    def __init__(self, inputs: Mapping[str, Array]) -> None:
        self._given = dict(inputs)
        self._files: dict[str, tuple[Path, str]] = {}
        self.kinds = {name: (array.dtype.name, array.shape) for name, array in self._given.items()}
        """The element type and shape of each, known without reading it."""

    def add(self, file: Path, names: Iterable[str]) -> None:
        """The arrays of an npz file, in the order of ``names``."""
        import numpy as np

        with np.load(file, allow_pickle=False) as arrays:
            for i, name in enumerate(names):
                self._files[name] = (file, f"arr_{i}")
                array = arrays[f"arr_{i}"]
                self.kinds[name] = (array.dtype.name, array.shape)

    def shapes(self, node: ir.Node) -> dict[str, tuple[int, ...]]:
        """The shapes of a node's outputs."""
        return {
            name: self.kinds[name][1] for value in node.outputs if (name := str(value.name)) in self.kinds
        }

    def __getitem__(self, name: str) -> Array:
        import numpy as np

        if name in self._given:
            return self._given[name]
        file, key = self._files[name]
        with np.load(file, allow_pickle=False) as arrays:
            array: Array = arrays[key]
            return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._given.keys() | self._files.keys())

    def __len__(self) -> int:
        return len(self._given.keys() | self._files.keys())


def compute_tensors(model: ir.Model, sample: Mapping[str, Array], folder: Path, limits: Limits) -> Tensors:
    """Every tensor of the main graph that is made by a node and has an ordinary element type."""
    tensors = Tensors(sample)
    for number, names in enumerate(_chunks(model)):
        part = folder / f"tensors{number}"
        part.mkdir()
        path = part / "exposed.onnx"
        ir.save(exposing(model, names), path)
        files = write_samples([sample], part)
        with Worker(MODULE, part / "native.log", limits=limits) as worker:
            request = RunRequest(str(path), "", files, optimize=False)
            reply = from_plain(RunReply, call(worker, "run_model", request))
        path.unlink()
        tensors.add(Path(files.outputs, "0.npz"), reply.output_names)
    return tensors


def _chunks(model: ir.Model) -> Iterator[list[str]]:
    names: list[str] = []
    size = total = 0
    for value in (value for node in model.graph for value in node.outputs):
        if not value.name or value.dtype not in _PLAIN or constant(value) is not None:
            continue
        shape = fixed_shape(value)
        count = _UNKNOWN if shape is None else prod(shape)
        total += count
        if total > _MOST:
            break
        if names and size + count > _CHUNK:
            yield names
            names, size = [], 0
        names.append(value.name)
        size += count
    if names:
        yield names
