"""Inputs to prove changes with: the user's own, the zoo's, or random ones, which is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import zoo
from hexport.errors import BadSamples
from hexport.model.dims import Shape
from hexport.model.graph import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Sample = dict[str, Array]

COUNT = 3
_NUMBERS = re.compile(r"bool|float(16|32|64)|u?int(8|16|32|64)")


@dataclass(frozen=True)
class Samples:
    """What a change is tried on."""

    values: tuple[Sample, ...]
    real: bool
    """Whether they are the model's own kind of input; random numbers show less."""
    offered: int = COUNT
    """How many there were to choose from, as far as that is known; the first are used."""
    notes: tuple[str, ...] = ()
    """What was done to them so that they fit."""


def find_samples(
    model: str | Path,
    graph: Graph,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, Array],
    calib: object = None,
    preprocess: str | Path | None = None,
) -> Samples:
    """The best there is: ``calib``, else the zoo's test inputs, else random numbers."""
    _refuse_other_than_numbers(graph, frozen)
    if calib is not None:
        return _given(calib, graph, shapes, frozen, preprocess)
    if str(model).startswith("zoo:"):
        name = str(model).removeprefix("zoo:")
        if zoo.entry(name).input_shapes == dict(shapes):
            return Samples(
                tuple({**s, **frozen} for s in zoo.inputs(name, count=COUNT, split="test")), real=True
            )
    return Samples(tuple(_random(graph, shapes, frozen, seed) for seed in range(COUNT)), real=False)


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


def _given(
    calib: object,
    graph: Graph,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, Array],
    preprocess: str | Path | None,
) -> Samples:
    # Here, because what prepares without the user's samples does not need to know how they are read.
    from hexport.quantization.data import open_calibration

    with open_calibration(calib, graph, shapes, frozen, preprocess=preprocess) as data:
        values = data.first(COUNT)
        if not values:
            raise BadSamples(f"{data.description} holds no sample", next="give at least one")
        return Samples(tuple(values), real=True, offered=data.count or len(values), notes=data.notes)
