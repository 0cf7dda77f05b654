"""What the caller gives, looked at before native code sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.packaging.manifest import Contract, FrozenInput, Tensor
from hexport.runtime.bucket_choice import dims_of
from hexport.runtime.failures import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_TEXT = "string"
_FP16_EXPONENT = np.uint16(0x7C00)
"""All of its bits: infinity or no number."""
_largest, _smallest = np.maximum.reduce, np.minimum.reduce


@dataclass(frozen=True)
class Request:
    """Inputs that fit the contract: names, types, ranks and fixed sizes."""

    arrays: dict[str, Array]
    dims: dict[str, int]
    """The size of each named dim."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.arrays.items()}


class Reception:
    """Takes requests by one contract."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self._inputs = {tensor.name: tensor for tensor in contract.inputs}
        self._dtypes = {t.name: None if t.dtype == _TEXT else np.dtype(t.dtype) for t in contract.inputs}
        self._floats = tuple(name for name, dtype in self._dtypes.items() if dtype and dtype.kind == "f")
        self._has_text = None in self._dtypes.values()

    @cached_property
    def frozen(self) -> dict[str, Array]:
        """Inputs of the original that are settled, with their values."""
        return {one.name: frozen_value(one) for one in self.contract.frozen}

    def familiar_shapes(self, inputs: Mapping[str, object]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes, in the contract's order, of inputs that need no other look than that; else None.

        Those are exactly the contract's inputs, as numpy arrays of the right types that lie as C has them.
        """
        if type(inputs) is not dict or len(inputs) != len(self._dtypes) or self._has_text:
            return None
        shapes = []
        for name, dtype in self._dtypes.items():
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or not array.flags.carray:
                return None
            shapes.append(array.shape)
        return tuple(shapes)

    def without_number(self, arrays: Mapping[str, Array]) -> str:
        """The first input that holds NaN or an infinity; empty: all are numbers."""
        for name in self._floats:
            if name in arrays and not _finite(arrays[name]):
                return name
        return ""

    def take(self, inputs: Mapping[str, object]) -> Request:
        """The request, or the error that says what does not fit."""
        if not isinstance(inputs, Mapping):
            raise BadInput(
                f"inputs are given as {type(inputs).__name__}", next="give a dict: name of the input → array"
            )
        self._refuse_names(inputs)
        arrays = {
            name: self._fitted(tensor, inputs[name])
            for name, tensor in self._inputs.items()
            if name in inputs
        }
        for name, value in self.frozen.items():
            if name in inputs and not np.array_equal(
                np.asarray(inputs[name]), value, equal_nan=_float(value)
            ):
                raise BadInput(
                    f"input {name!r} has another value than the one it was frozen to, {value.tolist()}",
                    next=f"leave {name!r} out, or build a package for that value",
                )
        return Request(arrays, dims_of(self.contract, {name: a.shape for name, a in arrays.items()}))

    def _refuse_names(self, inputs: Mapping[str, object]) -> None:
        for name in inputs:
            if name not in self._inputs and name not in self.frozen:
                raise BadInput(f"{name!r} is no input", why=f"there is: {', '.join(self._inputs) or 'none'}")
        for name, tensor in self._inputs.items():
            if name not in inputs and not tensor.optional:
                raise BadInput(
                    f"input {name!r} is missing", why=f"given: {', '.join(map(str, inputs)) or 'none'}"
                )

    def _fitted(self, tensor: Tensor, value: object) -> Array:
        array, dtype = as_array(tensor.name, value), self._dtypes[tensor.name]
        if dtype is None:
            if array.dtype.kind not in "OUST":
                raise _misfit(tensor, array, "text")
        elif array.dtype != dtype:
            if array.dtype.newbyteorder("=") != dtype:
                raise _misfit(tensor, array, f"array.astype('{tensor.dtype}'), if that is right")
            array = array.astype(dtype)
        if tensor.dims is not None:
            _refuse_shape(tensor, tensor.dims, array)
        # Native code takes both for granted; not every processor forgives the second.
        if not array.flags.c_contiguous or not array.flags.aligned:
            array = array.copy()
        return array


def as_array(name: str, value: object) -> Array:
    """numpy's own, or a tensor of another library that numpy can see through DLPack."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise BadInput(
                f"input {name!r} cannot be taken through DLPack",
                why=str(error),
                next="bring it to the CPU, in a type that numpy has",
            ) from error
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"input {name!r} is no array", why=str(error)) from error


def frozen_value(one: FrozenInput) -> Array:
    """The value that an input was frozen to."""
    plain = [float(value) if isinstance(value, str) else value for value in one.values]
    return np.array(plain).astype(one.dtype).reshape(one.shape)


def _refuse_shape(tensor: Tensor, dims: tuple[int | str | None, ...], array: Array) -> None:
    if array.ndim != len(dims):
        raise _misfit(tensor, array, f"{len(dims)} axes")
    for dim, size in zip(dims, array.shape, strict=True):
        if isinstance(dim, int) and dim != size:
            raise _misfit(tensor, array, "the sizes that are fixed")


def _misfit(tensor: Tensor, array: Array, wanted: str) -> BadInput:
    dims = "" if tensor.dims is None else str(["?" if dim is None else dim for dim in tensor.dims])
    return BadInput(
        f"input {tensor.name!r} is {array.dtype.name}{list(array.shape)}",
        why=f"{tensor.dtype}{dims} is taken",
        next=f"give {wanted}",
    )


def _finite(array: Array) -> bool:
    """Two passes at the speed of memory: NaN is larger and smaller than any number to numpy.

    Comparing fp16 is a hundred times slower in numpy than looking at its exponents, which are whole numbers.
    """
    flat = array.reshape(-1)
    if not flat.size:
        return True
    if flat.dtype == np.float16:
        return bool(_largest(flat.view(np.uint16) & _FP16_EXPONENT) != _FP16_EXPONENT)
    return isfinite(_largest(flat)) and isfinite(_smallest(flat))


def _float(array: Array) -> bool:
    return array.dtype.kind == "f"
