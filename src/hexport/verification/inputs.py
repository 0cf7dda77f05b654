"""The inputs that both sides are given: the user's own, the zoo's, or random ones, which is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport import zoo
from hexport.errors import BadSamples, UsageError
from hexport.model.dims import Shape
from hexport.model.graph import TensorType
from hexport.runtime.array_files import read_arrays
from hexport.runtime.failures import BadInput
from hexport.zoo.models import PREFIX

Array = NDArray[Any]
Sample = dict[str, Array]

COUNT = 3
"""How many are made where the user gives none: the simulator takes up to half a minute for each."""
_FORM = "give an .npz as numpy.savez writes it: one array an input, whose first axis counts the samples"
_RANDOM = "compared on random inputs, which show little; give real ones with --inputs FILE.npz"


@dataclass(frozen=True)
class Inputs:
    """Samples, all of one shape."""

    samples: tuple[Sample, ...]
    origin: str
    real: bool
    notes: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, Shape]:
        return {name: array.shape for name, array in self.samples[0].items()}


def read_inputs(
    path: Path, wanted: Mapping[str, TensorType], frozen: Mapping[str, Array], count: int | None
) -> Inputs:
    """The samples of a file, checked against what the two sides take."""
    arrays = {name: np.atleast_1d(array) for name, array in _load(path).items()}
    if missing := [name for name in wanted if name not in arrays]:
        raise BadSamples(f"{path} has no array for input {missing[0]!r}", why=_holds(arrays), next=_FORM)
    if extra := [name for name in arrays if name not in wanted and name not in frozen]:
        known = ", ".join([*wanted, *frozen])
        raise BadSamples(f"{path}: {extra[0]!r} is no input of either side", why=f"they take: {known}")
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        listed = ", ".join(f"{size} of {name!r}" for name, size in counts.items()) or "nothing"
        raise BadSamples(f"{path}: the numbers of samples differ, or there are none: {listed}", next=_FORM)
    offered = min(counts.values())
    used = offered if count is None else min(count, offered)
    samples = tuple({name: _sample(path, name, arrays, i, wanted) for name in wanted} for i in range(used))
    for name, value in frozen.items():
        if name in arrays and not all(np.array_equal(row, value) for row in arrays[name][:used]):
            raise BadSamples(
                f"{path}: {name!r} has another value than the one it was frozen to, {value.tolist()}",
                next=f"leave {name!r} out of the file",
            )
    notes = (f"the first {used} of {offered} samples are used",) if used < offered else ()
    return Inputs(samples, str(path), True, notes)


def zoo_inputs(name: str, wanted: Mapping[str, TensorType], count: int | None) -> Inputs | None:
    """The zoo's own test inputs of the model ``zoo:…``; None if ``name`` is none or they do not fit."""
    if not name.startswith(PREFIX):
        return None
    shapes = zoo.entry(name.removeprefix(PREFIX)).input_shapes
    if not all(i in shapes and _fits(shapes[i], tensor) for i, tensor in wanted.items()):
        return None
    made = zoo.inputs(name.removeprefix(PREFIX), count=count or COUNT, split="test")
    samples = tuple({i: np.asarray(sample[i]) for i in wanted} for sample in made)
    return Inputs(samples, f"the zoo's test inputs of {name}", True)


def random_inputs(wanted: Mapping[str, TensorType], shapes: Mapping[str, Shape], count: int | None) -> Inputs:
    """The same each time."""
    samples = tuple(_random(wanted, shapes, seed) for seed in range(count or COUNT))
    return Inputs(samples, "random numbers", False, (_RANDOM,))


def check_count(count: int | None) -> None:
    if count is not None and count < 1:
        raise UsageError(f"--samples {count}: one is the least")


def refuse_misfits(side: str, takes: Mapping[str, TensorType], sample: Mapping[str, Array]) -> None:
    """Say which input does not fit a side, before native code says it in its own words."""
    for name, tensor in takes.items():
        if name not in sample:
            raise BadSamples(
                f"{side} takes input {name!r}, for which there is nothing",
                why=f"there is: {', '.join(sample) or 'nothing'}",
                next="give it in --inputs; is this the model that it was made from?",
            )
        array = sample[name]
        if array.dtype.name != tensor.dtype or not _fits(array.shape, tensor):
            raise BadSamples(
                f"{side} takes {name!r} as {tensor}",
                why=f"the inputs have {array.dtype.name}{list(array.shape)}",
                next="is this the model that it was made from, at sizes that it takes?",
            )


def _load(path: Path) -> dict[str, Array]:
    try:
        return read_arrays(path)
    except BadInput as error:
        raise BadSamples(error.what, why=error.why, next=_FORM) from error


def _holds(arrays: Mapping[str, Array]) -> str:
    return f"it has: {', '.join(arrays) or 'nothing'}"


def _sample(
    path: Path, name: str, arrays: Mapping[str, Array], number: int, wanted: Mapping[str, TensorType]
) -> Array:
    array, tensor = arrays[name][number], wanted[name]
    if not _fits(array.shape, tensor):
        raise BadSamples(
            f"{path}: a sample of {name!r} has shape {list(array.shape)}",
            why=f"{tensor} is taken",
            next="the first axis counts the samples; the rest is the shape of one input",
        )
    dtype = _numpy_type(name, tensor)
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    converted = np.asarray(array).astype(dtype) if _whole(array.dtype, dtype) else None
    if converted is None or not np.array_equal(converted, array):
        raise BadSamples(
            f"{path}: {name!r} is {array.dtype.name}",
            why=f"{tensor.dtype} is taken, and only whole numbers are converted unasked, without loss",
            next=f"convert it yourself if that is right: array.astype('{tensor.dtype}')",
        )
    return converted


def _whole(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    return given.kind in "iu" and dtype.kind in "iu"


def _fits(shape: Sequence[int], tensor: TensorType) -> bool:
    if tensor.shape is None:
        return True
    return len(shape) == len(tensor.shape) and all(
        not isinstance(dim, int) or dim == size for size, dim in zip(shape, tensor.shape, strict=True)
    )


def _random(wanted: Mapping[str, TensorType], shapes: Mapping[str, Shape], seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    sample: Sample = {}
    for name, tensor in wanted.items():
        dtype = _numpy_type(name, tensor)
        # Small whole numbers are the safest guess for indices, ids and masks alike.
        values = rng.normal(size=shapes[name]) if dtype.kind == "f" else rng.integers(0, 2, shapes[name])
        sample[name] = np.asarray(values).astype(dtype)
    return sample


def _numpy_type(name: str, tensor: TensorType) -> np.dtype[Any]:
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "bfiu":
        raise BadSamples(
            f"input {name!r} is {tensor.dtype}, and only plain numbers can be compared on",
            why="the NPU takes no such input",
        )
    return dtype
