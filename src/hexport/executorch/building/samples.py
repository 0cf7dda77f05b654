"""Which samples give the ranges of a method, and which it is verified on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hexport.model.graph import Graph, TensorType
from hexport.quantization.data import CalibrationData, open_calibration
from hexport.torch.fixing import FixedModel
from hexport.verification.inputs import random_inputs

Sample = Mapping[str, NDArray[Any]]
MOST_HELD = 4
_SHARE = 4
"""One sample in so many is held back."""


@dataclass(frozen=True)
class Samples:
    """Real inputs of one method, as far as there are any."""

    fit: object
    """For ranges; None: there are none."""
    held: tuple[Sample, ...]
    origin: str
    """What those are, in words."""


def split_samples(
    model: FixedModel, calib: object, preprocess: str | Path | None, limit: int | None
) -> Samples:
    """The last samples of ``calib`` are held back; without any, the model's example has to do."""
    if calib is None:
        return Samples(None, *_example(model))
    inputs = {name: TensorType(str(array.dtype), array.shape) for name, array in model.example.items()}
    shapes = {name: array.shape for name, array in model.example.items()}
    data = open_calibration(calib, Graph((), inputs, {}, {}), shapes, {}, preprocess=preprocess, limit=limit)
    last: deque[Sample] = deque(maxlen=MOST_HELD)
    count = 0
    for sample in data:
        last.append(sample)
        count += 1
    held = min(MOST_HELD, count // _SHARE)
    if not held:
        said = f"{count} of the samples that gave the ranges, too few to hold any back"
        return Samples(data, tuple(last), said)
    kept = _First(data, count - held)
    return Samples(kept, tuple(last)[-held:], f"{held} samples that gave no range")


class _First:
    """All but the samples that are held back, as often as needed."""

    def __init__(self, data: CalibrationData, count: int) -> None:
        self._data, self._count = data, count
        # What messages call it by.
        module, _, name = data.description.rpartition(":")
        self.__qualname__, self.__module__ = name, module or "samples"

    def __call__(self) -> Iterator[Sample]:
        return islice(iter(self._data), self._count)


def _example(model: FixedModel) -> tuple[tuple[Sample, ...], str]:
    """What is one number throughout is an example of a shape, and of nothing else."""
    if any(array.size and (array != array.flat[0]).any() for array in model.example.values()):
        return (model.example,), "the example inputs that came with the model"
    inputs = {name: TensorType(str(array.dtype), array.shape) for name, array in model.example.items()}
    found = random_inputs(inputs, {name: array.shape for name, array in model.example.items()}, 1)
    return tuple(found.samples), found.origin
