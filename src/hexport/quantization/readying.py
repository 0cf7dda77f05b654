"""What quantising begins with: the prepared model, and calibration data for the inputs of the user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hexport import facts, zoo
from hexport.errors import UsageError
from hexport.model import Graph, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.labels import PREPARED
from hexport.preparation.freezing import parse_frozen
from hexport.quantization.data import CalibrationData, open_calibration, sized_by_samples
from hexport.toolchain import Limits
from hexport.zoo.defaults import zoo_defaults

_PROOFS = 3
"""Samples that changes to the model are proved on."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """What the user says of the inputs."""

    dims: Mapping[str, int] | None
    shapes: Mapping[str, Shape] | None
    freeze: Mapping[str, str] | None


@dataclass(frozen=True)
class Ready:
    """A prepared model with its data; frozen inputs are in the data, and not in the model."""

    path: Path
    graph: Graph
    data: CalibrationData
    notes: tuple[str, ...]
    cures: tuple[str, ...] = ()
    """The rules that changed it; unknown of a model that was prepared before."""


@contextmanager
def get_ready(
    model: str | Path,
    soc: facts.Soc,
    calib: object,
    sizes: Sizes,
    preprocess: str | Path | None,
    samples: int | None,
    folder: Path,
    limits: Limits,
    say: Say,
    cures: Sequence[str],
) -> Iterator[Ready]:
    """The model, prepared now unless it was before or the cache has it.

    ``cures``: the rules that it was prepared with at another size, where its precisions were decided.
    """
    source = read(zoo.resolve(model))
    _refuse_quantised(model, source.graph)
    calib = calib if calib is not None or not str(model).startswith("zoo:") else str(model)
    if calib is None:
        raise UsageError(
            "quantising needs calibration data",
            why="the ranges of integers are those of real inputs; random numbers give a useless model",
            next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; docs/calibration.md has all of it",
        )
    given, freeze, notes = zoo_defaults(model, sizes.shapes, sizes.freeze, sized=bool(sizes.dims))
    command = f"hexport quantize '{model}' --target {soc.chip}"
    unsized = parse_frozen(source.graph, freeze, {})
    dims, given, said = sized_by_samples(source.graph, sizes.dims or {}, given, calib, unsized, limit=samples)
    notes += said
    shapes = fix_shapes(source.graph, dims, given, command)
    values = parse_frozen(source.graph, freeze, shapes)
    with _opened(calib, source.graph, shapes, values, preprocess, samples) as data:
        if any(bytes(entry.key) == PREPARED.encode() for entry in source.proto.metadata_props):
            ready = Ready(source.path, source.graph, data, tuple(notes))
            # Not kept while quantising: its parsed file is as large as the model.
            del source
            yield ready
            return
        proofs = folder / "proofs.npz"
        free = [name for name in source.graph.inputs if name not in values]
        digest = write_proofs(data, free, proofs)
        # Only now: preparing is a large part of hexport, and a prepared model needs none of it.
        from hexport.preparation.kept import prepared

        found = prepared(source, soc, shapes, freeze, proofs, digest, limits, say, cures=cures)
        del source
        yield Ready(found.path, read(found.path).graph, data, (*notes, *found.warnings), found.cures)


@contextmanager
def _opened(
    calib: object,
    graph: Graph,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, Any],
    preprocess: str | Path | None,
    samples: int | None,
) -> Iterator[CalibrationData]:
    """The data; whoever opened it already closes it."""
    if isinstance(calib, CalibrationData):
        yield calib
        return
    with open_calibration(calib, graph, shapes, frozen, preprocess=preprocess, limit=samples) as data:
        yield data


def write_proofs(data: CalibrationData, names: list[str], path: Path) -> str:
    """The first samples as a file; gives a digest of them, because an archive's own bytes hold the time."""
    first = list(islice(data, _PROOFS))
    arrays: dict[str, Any] = {name: np.stack([sample[name] for sample in first]) for name in names}
    np.savez(path, **arrays)
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _refuse_quantised(model: str | Path, graph: Graph) -> None:
    if any(node.op in ("QuantizeLinear", "DequantizeLinear") for node in graph.walk()):
        raise UsageError(
            f"{model} is quantised already",
            why="rounding what is rounded only loses",
            next="give the float model, or use this one as it is: `hexport check` tells how it runs",
        )
