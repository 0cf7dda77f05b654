"""Running the float model on calibration data and looking at every tensor, in memory that stays flat.

A part of the tensors is exposed at a time, so that one run gives back 56 MB, or a quarter of all that there
is if that is more; of every array only the histogram is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.free_memory import hand_back
from hexport.model.reference import cpu_session
from hexport.model.weights_beside import save_with_weights_beside
from hexport.quantization.histogram import Histogram
from hexport.rewrite.exposing import exposing
from hexport.rewrite.unused import remove_unused
from hexport.rewrite.values import constant, fixed_shape

Sample = Mapping[str, NDArray[Any]]
_CHUNK = 14_000_000
"""Numbers that one run gives back: 56 MB."""
_MOST_CHUNKS = 4
"""Runs a sample, even if each then gives back more than that."""
_UNKNOWN = 1_000_000


def observe(
    model: ir.Model,
    samples: Iterable[Sample],
    folder: Path,
    tell: Callable[[int, int, int], None] = lambda *_: None,
    listen: Callable[[int, str, NDArray[Any]], None] = lambda *_: None,
) -> dict[str, Histogram]:
    """Histograms of every float tensor that is not constant; ``samples`` is gone through once a chunk.

    ``tell`` is given how many samples of this chunk are done, its number, and how many chunks there are;
    ``listen`` every array, with the number of its sample and its name, while it is there.
    """
    seen: defaultdict[str, Histogram] = defaultdict(Histogram)
    inputs = [str(value.name) for value in model.graph.inputs if value.dtype == ir.DataType.FLOAT]
    parts = chunks(model) or [[]]
    for number, names in enumerate(parts):
        session = exposed_session(model, names, folder / f"observe{number}.onnx") if names else None
        for index, sample in enumerate(samples):
            for name, array in _arrays(session, names, sample, inputs if number == 0 else ()):
                seen[name].add(array)
                listen(index, name, array)
            tell(index + 1, number, len(parts))
        del session
        hand_back()
    return dict(seen)


def _arrays(
    session: Any, names: Sequence[str], sample: Sample, inputs: Sequence[str]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Held by nobody else, so that one sample's are gone before the next one's are made."""
    if session is not None:
        yield from zip(names, session.run(names, dict(sample)), strict=True)
    for name in inputs:
        yield name, sample[name]


def chunks(model: ir.Model) -> list[list[str]]:
    """The names of the float tensors, in runs of about the same size."""
    sizes = {
        value.name: _UNKNOWN if (shape := fixed_shape(value)) is None else prod(shape)
        for node in model.graph
        for value in node.outputs
        if value.name and constant(value) is None and value.dtype == ir.DataType.FLOAT
    }
    total = sum(sizes.values())
    parts: list[list[str]] = [[] for _ in range(min(1 + total // _CHUNK, _MOST_CHUNKS))]
    before = 0
    for name, size in sizes.items():
        # Something without any numbers may come last.
        parts[min(before * len(parts) // max(total, 1), len(parts) - 1)].append(name)
        before += size
    return [names for names in parts if names]


def exposed_session(model: ir.Model, names: Sequence[str], path: Path) -> Any:
    """A session on the CPU whose outputs are the tensors ``names``."""
    copy = exposing(model, names)
    # onnxruntime would also compute what comes after them.
    remove_unused(copy.graph)
    save_with_weights_beside(copy, path)
    return cpu_session(path, hoard=False)
