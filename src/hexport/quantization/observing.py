"""Running the float model on calibration data and looking at every tensor, in memory that stays flat.

A part of the tensors is exposed at a time, so that one run gives back a bounded amount; of every array only
the histogram is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.reference import cpu_session
from hexport.model.weights_beside import save_with_weights_beside
from hexport.quantization.histogram import Histogram
from hexport.rewrite.exposing import exposing
from hexport.rewrite.values import constant, fixed_shape

Sample = Mapping[str, NDArray[Any]]
_CHUNK = 14_000_000
"""Numbers that one run gives back: 56 MB."""
_UNKNOWN = 1_000_000


def observe(
    model: ir.Model,
    samples: Iterable[Sample],
    folder: Path,
    tell: Callable[[int, int], None] = lambda *_: None,
    listen: Callable[[int, str, NDArray[Any]], None] = lambda *_: None,
) -> dict[str, Histogram]:
    """Histograms of every float tensor that is not constant; ``samples`` is gone through once a chunk.

    ``tell`` is given how many samples of this chunk are done, and how many chunks are left after it;
    ``listen`` every array, with the number of its sample and its name, while it is there.
    """
    seen: dict[str, Histogram] = {}
    parts = list(chunks(model))
    for number, names in enumerate(parts):
        session = exposed_session(model, names, folder / f"observe{number}.onnx")
        for index, sample in enumerate(samples):
            for name, array in zip(names, session.run(names, dict(sample)), strict=True):
                seen.setdefault(name, Histogram()).add(array)
                listen(index, name, array)
            tell(index + 1, len(parts) - number - 1)
    inputs = [str(value.name) for value in model.graph.inputs if value.dtype == ir.DataType.FLOAT]
    for index, sample in enumerate(samples):
        for name in inputs:
            seen.setdefault(name, Histogram()).add(sample[name])
            listen(index, name, sample[name])
    return seen


def chunks(model: ir.Model) -> Iterator[list[str]]:
    """The names of the float tensors, in runs of a bounded size."""
    names: list[str] = []
    size = 0
    for node in model.graph:
        for value in node.outputs:
            if not value.name or constant(value) is not None or value.dtype != ir.DataType.FLOAT:
                continue
            shape = fixed_shape(value)
            count = _UNKNOWN if shape is None else prod(shape)
            if names and size + count > _CHUNK:
                yield names
                names, size = [], 0
            names.append(value.name)
            size += count
    if names:
        yield names


def exposed_session(model: ir.Model, names: Sequence[str], path: Path) -> Any:
    """A session on the CPU whose outputs are the tensors ``names``."""
    copy = exposing(model, names)
    save_with_weights_beside(copy, path)
    return cpu_session(path, hoard=False)
