"""Making a sample fit the model, or saying which input of which sample does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexport.errors import BadSamples
from hexport.model.dims import Shape
from hexport.model.graph import Graph, TensorType
from hexport.quantization.data.sample import Array, Found, Sample
from hexport.runtime.padding import pad

# Element types that .npy files hold under their own name; bfloat16 and smaller ones become bare bytes.
HOLDABLE = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the model takes at one input."""

    dtype: np.dtype[Any]
    shape: Shape


class Fitting:
    """The model's side of the matter: what each sample is held against."""

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shape],
        frozen: Mapping[str, Array],
        fill: Mapping[str, Mapping[int, int | float | bool]] | None = None,
    ) -> None:
        for name, tensor in graph.inputs.items():
            if tensor.dtype not in HOLDABLE:
                raise BadSamples(
                    f"input {name!r} takes {tensor.dtype}, which calibration data cannot hold",
                    why=f"they hold: {', '.join(sorted(HOLDABLE))}",
                    next="put a Cast in front of this input, or freeze it",
                )
        self.inputs = {n: Wanted(np.dtype(t.dtype), tuple(shapes[n])) for n, t in graph.inputs.items()}
        self.frozen = dict(frozen)
        self.fill = fill or {}
        """Input -> axis -> what smaller samples are filled up with along it."""
        self.free = tuple(name for name in self.inputs if name not in frozen)
        """What samples must bring; values for frozen inputs may come along."""
        self._converted: dict[str, np.dtype[Any]] = {}
        self._widened: set[str] = set()
        if not self.free:
            raise BadSamples("there is nothing to calibrate with: the model has no input that is not frozen")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to samples so that they fit."""
        converted = (
            f"input {name!r}: {given} in the samples, converted to {self.inputs[name].dtype} without loss"
            for name, given in self._converted.items()
        )
        widened = (
            f"input {name!r}: the samples have no batch axis, and one is put in front"
            for name in sorted(self._widened)
        )
        return (*converted, *widened)

    def fit(self, found: Found, number: int) -> Sample:
        """The sample with every input of the model, in the model's order and types."""
        where = f"{found.origin}, sample {number}"
        self.check_names(found.values, where)
        sample: Sample = {}
        for name in self.inputs:
            if name in found.values:
                sample[name] = self._fit_one(name, found.values[name], where)
            if name in self.frozen:
                self._agree(name, sample.get(name), where)
                sample[name] = self.frozen[name]
        return sample

    def check_names(self, names: Iterable[str], where: str) -> None:
        """Refuse what is missing and what no input asks for."""
        given = list(names)
        if missing := [name for name in self.free if name not in given]:
            raise BadSamples(
                f"{where}: nothing for input {missing[0]!r}",
                why=f"it has: {', '.join(map(str, given)) or 'nothing'}",
                next=f"give exactly: {', '.join(self.free)}",
            )
        if extra := [name for name in given if name not in self.inputs]:
            raise BadSamples(
                f"{where}: {extra[0]!r} is no input of the model",
                why=f"its inputs are: {', '.join(self.inputs)}",
                next=f"leave {extra[0]!r} out, or give it an input's name",
            )

    def check_form(self, name: str, dtype: np.dtype[Any], shape: Shape, where: str) -> None:
        """Refuse a shape or an element type that is not the input's; needs no data, only a header."""
        wanted = self.inputs[name]
        if not self._fits(name, shape) and not self._lacks_batch(name, shape):
            raise BadSamples(
                f"{where}: input {name!r} has shape {list(shape)}",
                why=self._wanted_shape(name),
                next=self._shape_advice(name, shape),
            )
        whole = dtype.kind in "iu" and wanted.dtype.kind in "iu"
        if not whole and dtype.newbyteorder("=") != wanted.dtype:
            raise BadSamples(
                f"{where}: input {name!r} is {dtype.name}",
                why=f"the model takes {wanted.dtype}, and only whole numbers are converted unasked",
                next=f"convert it yourself if that is right: array.astype('{wanted.dtype}')",
            )

    def _wanted_shape(self, name: str) -> str:
        return f"the model is given {list(self.inputs[name].shape)}"

    def _shape_advice(self, name: str, shape: Shape) -> str:
        if self._fits(name, shape[1:]):
            return "one sample has an axis too many; only in an .npz file the first axis counts the samples"
        return "give the shape that the model is prepared for, or other sizes with --dim and --input-shape"

    def _lacks_batch(self, name: str, shape: Shape) -> bool:
        """Whether it is one of a batch: the model takes it with an axis of size 1 in front."""
        return not self._fits(name, shape) and self._fits(name, (1, *shape))

    def _fits(self, name: str, shape: Shape) -> bool:
        wanted, fill = self.inputs[name].shape, self.fill.get(name, {})
        return len(shape) == len(wanted) and all(
            size == full or (axis in fill and 0 < size < full)
            for axis, (size, full) in enumerate(zip(shape, wanted, strict=True))
        )

    def _fit_one(self, name: str, value: object, where: str) -> Array:
        try:
            # An object's own __array__ may raise anything.
            array = np.asarray(value)
        except Exception as error:
            raise BadSamples(
                f"{where}: input {name!r} is a {type(value).__name__} that numpy cannot take", why=str(error)
            ) from error
        self.check_form(name, array.dtype, array.shape, where)
        if self._lacks_batch(name, array.shape):
            self._widened.add(name)
            array = array[None]
        array = self._filled(name, self._convert(name, array, where))
        if array.dtype.kind == "f":
            _check_finite(name, array, where)
        return array

    def _filled(self, name: str, array: Array) -> Array:
        return pad(array, self.inputs[name].shape, self.fill.get(name, {}))

    def _convert(self, name: str, array: Array, where: str) -> Array:
        wanted = self.inputs[name].dtype
        if array.dtype.newbyteorder("=") != wanted:
            limits = np.iinfo(wanted)
            low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
            if low < limits.min or high > limits.max:
                raise BadSamples(
                    f"{where}: input {name!r} holds {low if low < limits.min else high}",
                    why=f"the model takes {wanted}, which ends at {limits.min} and {limits.max}",
                )
            self._converted.setdefault(name, array.dtype)
        return np.asarray(array, wanted, order="C")

    def _agree(self, name: str, given: Array | None, where: str) -> None:
        if given is not None and not np.array_equal(given, self.frozen[name]):
            raise BadSamples(
                f"{where}: input {name!r} is frozen to another value than the sample has",
                next=f"leave {name!r} out of the samples, or do not freeze it",
            )


class AnySize(Fitting):
    """Takes samples of every size that the model declares no number for: to see which sizes there are."""

    def __init__(self, graph: Graph, frozen: Mapping[str, Array]) -> None:
        self._dims = {name: tensor.shape for name, tensor in graph.inputs.items()}
        ones = {
            name: tuple(dim if isinstance(dim, int) else 1 for dim in dims or ())
            for name, dims in self._dims.items()
        }
        super().__init__(graph, ones, frozen)

    def _fits(self, name: str, shape: Shape) -> bool:
        dims = self._dims[name]
        return dims is None or (
            len(shape) == len(dims)
            and all(not isinstance(d, int) or d == size for d, size in zip(dims, shape, strict=True))
        )

    def _wanted_shape(self, name: str) -> str:
        return f"the model takes {TensorType(str(self.inputs[name].dtype), self._dims[name])}"

    def _filled(self, name: str, array: Array) -> Array:  # noqa: ARG002 - as it is
        return array

    def _agree(self, name: str, given: Array | None, where: str) -> None:
        """Not asked here: a frozen value has its shape only when the sizes are known."""


def _check_finite(name: str, array: Array, where: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise BadSamples(
            f"{where}: input {name!r} holds {array[place]} at {list(place)}",
            why="one such number makes every range that is measured useless",
            next="leave the sample out, or repair what makes it",
        )
