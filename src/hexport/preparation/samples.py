"""Inputs to prove changes with: the user's own, the zoo's, or random ones, which is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import zoo
from hexport.errors import HexportError
from hexport.model.dims import Shape
from hexport.model.graph import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Sample = dict[str, Array]

COUNT = 3
_NUMBERS = re.compile(r"bool|float(16|32|64)|u?int(8|16|32|64)")


class BadSamples(HexportError, ValueError):
    """Calibration or example inputs do not fit the model."""

    code = "HX701"


@dataclass(frozen=True)
class Samples:
    """What a change is tried on."""

    values: tuple[Sample, ...]
    real: bool
    """Whether they are the model's own kind of input; random numbers show less."""
    offered: int = COUNT
    """How many there were to choose from; the first are used."""


def find_samples(
    model: str | Path,
    graph: Graph,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, Array],
    calib: str | Path | None,
) -> Samples:
    """The best there is: ``--calib``, else the zoo's test inputs, else random numbers."""
    _refuse_other_than_numbers(graph, frozen)
    if calib is not None:
        return _from_file(Path(calib), graph, shapes, frozen)
    if str(model).startswith("zoo:"):
        name = str(model).removeprefix("zoo:")
        if zoo.entry(name).input_shapes == dict(shapes):
            return Samples(
                tuple({**s, **frozen} for s in zoo.inputs(name, count=COUNT, split="test")), real=True
            )
    return Samples(tuple(_random(graph, shapes, frozen, seed) for seed in range(COUNT)), real=False)


def sizes_in(calib: str | Path, graph: Graph) -> dict[str, Shape]:
    """The shapes of the samples in a file, by input."""
    found = {}
    for name, array in _read_arrays(Path(calib)).items():
        tensor, shape = graph.inputs.get(name), array.shape[1:]
        if tensor is None or not array.ndim:
            continue
        declared = shape if tensor.shape is None else tensor.shape
        if len(declared) != len(shape):
            raise _misshapen(Path(calib), name, shape, f"the model takes {tensor}")
        found[name] = shape
    return found


def _refuse_other_than_numbers(graph: Graph, frozen: Mapping[str, Array]) -> None:
    for name, tensor in graph.inputs.items():
        if name not in frozen and not _NUMBERS.fullmatch(tensor.dtype):
            raise BadSamples(
                f"input {name!r} is {tensor.dtype}, and prepare can prove changes on plain numbers only",
                why="the NPU takes no such input",
                next="cut the part of the model that takes it away, and prepare the rest",
            )


def _random(graph: Graph, shapes: Mapping[str, Shape], frozen: Mapping[str, Array], seed: int) -> Sample:
    import numpy as np

    rng = np.random.default_rng(seed)
    sample: Sample = dict(frozen)
    for name, tensor in graph.inputs.items():
        if name in sample:
            continue
        if tensor.dtype.startswith("float"):
            sample[name] = rng.normal(size=shapes[name]).astype(tensor.dtype)
        elif tensor.dtype == "bool":
            sample[name] = rng.random(shapes[name]) < 0.5
        else:
            # Small whole numbers are the safest guess for indices, ids and masks alike.
            sample[name] = rng.integers(0, 2, shapes[name]).astype(tensor.dtype)
    return sample


def _read_arrays(path: Path) -> dict[str, Array]:
    import zipfile

    import numpy as np

    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadSamples(
            f"{path} cannot be read",
            why=str(error),
            next="give an .npz with one array an input, samples first",
        ) from error


def _from_file(path: Path, graph: Graph, shapes: Mapping[str, Shape], frozen: Mapping[str, Array]) -> Samples:
    arrays = _read_arrays(path)
    needed = [name for name in graph.inputs if name not in frozen]
    if missing := [name for name in needed if name not in arrays]:
        raise BadSamples(f"{path} has no array for input {missing[0]!r}", why=f"it has: {', '.join(arrays)}")
    # A lone number has no axis to count by.
    counts = {len(arrays[name]) if arrays[name].ndim else 0 for name in needed}
    if len(counts) != 1 or 0 in counts:
        raise BadSamples(
            f"{path}: the inputs have {sorted(counts)} samples", next="give the same number, at least one"
        )
    for name in needed:
        _check(path, name, arrays[name], graph.inputs[name].dtype, shapes[name])
    offered = counts.pop()
    used = range(min(offered, COUNT))
    values = tuple({**{name: arrays[name][i] for name in needed}, **frozen} for i in used)
    return Samples(values, real=True, offered=offered)


def _check(path: Path, name: str, array: Array, dtype: str, shape: Shape) -> None:
    import numpy as np

    if array.shape[1:] != tuple(shape):
        raise _misshapen(path, name, array.shape[1:], f"the model is prepared for {list(shape)}")
    if array.dtype.name != dtype:
        raise BadSamples(f"{path}: {name!r} is {array.dtype.name}", why=f"the model takes {dtype}")
    bad = ~np.isfinite(array.astype(np.float64)) if np.issubdtype(array.dtype, np.floating) else np.zeros(1)
    if bad.any():
        raise BadSamples(f"{path}: sample {int(np.argwhere(bad)[0][0])} of {name!r} holds NaN or infinity")


def _misshapen(path: Path, name: str, shape: Shape, why: str) -> BadSamples:
    return BadSamples(
        f"{path}: a sample of {name!r} has shape {list(shape)}",
        why=why,
        next="the first axis counts the samples; the rest is the shape of one input",
    )
