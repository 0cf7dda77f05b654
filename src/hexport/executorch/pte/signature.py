"""What a method of a ``.pte`` takes and gives, by the names in the file beside it or by their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.errors import UsageError
from hexport.executorch.pte.failures import PteNotRunnable
from hexport.executorch.pte.program import PteMethod, PteProgram, PteTensor
from hexport.executorch.pte.sidecar import Sidecar, TensorSpec, find_sidecar
from hexport.packaging.manifest import Contract, Tensor
from hexport.runtime.failures import BadInput
from hexport.runtime.requests import Reception

if TYPE_CHECKING:
    from numpy.typing import NDArray

_USUAL = "forward"


@dataclass(frozen=True)
class Signature:
    """A method with names."""

    method: PteMethod
    contract: Contract
    sidecar: Sidecar | None
    notes: tuple[str, ...] = ()

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.contract.outputs)

    def take(self, sample: Mapping[str, object]) -> dict[str, NDArray[Any]]:
        """The arrays of a sample in the order of the method, or the error that says what does not fit."""
        arrays = Reception(self.contract).take(sample).arrays
        for tensor, (name, array) in zip(self.method.inputs, arrays.items(), strict=True):
            if tensor is not None and tensor.varies and not tensor.unbounded:
                _refuse_larger(name, tensor, array)
        return arrays


def signature_of(program: PteProgram, asked: str | None = None) -> Signature:
    """Of the method that was asked for; else of ``forward``, or of the only one."""
    method = choose_method(program, asked)
    sidecar = find_sidecar(program.path)
    described = sidecar.method(method.name) if sidecar is not None else None
    inputs = _named(method.inputs, described.inputs if described else None, "input")
    outputs = _named(method.outputs, described.outputs if described else None, "output")
    notes: tuple[str, ...] = ()
    if described is None:
        name = f"{program.path.name}.json"
        notes = (f"no {name} has names for it: inputs and outputs go by their number, input_0, output_0, …",)
    return Signature(method, Contract(inputs, outputs), sidecar, notes)


def choose_method(program: PteProgram, asked: str | None) -> PteMethod:
    """Also the only one that takes anything: the others give constants."""
    methods = {method.name: method for method in program.methods}
    taking = [method for method in program.methods if method.inputs]
    if asked is None and _USUAL in methods:
        return methods[_USUAL]
    if asked is None and len(taking) == 1:
        return taking[0]
    if asked is None or asked not in methods:
        raise UsageError(
            f"{program.path} has no method {asked!r}" if asked else f"which method of {program.path}?",
            why=f"it has: {', '.join(methods) or 'none'}",
            next=f"--method {next(iter(methods))}" if methods else "lower the model again",
        )
    return methods[asked]


def refuse_unusual(program: PteProgram, method: PteMethod) -> None:
    """Inputs that no array can be given for."""
    for number, tensor in enumerate(method.inputs):
        kind = "not a tensor" if tensor is None else tensor.dtype
        if tensor is None or not _is_numpy(tensor.dtype):
            raise PteNotRunnable(
                f"input {number} of {program.path} is {kind}",
                why="arrays of numbers are given, of the types that numpy has",
                next="lower a module that takes tensors of float32, or of integers",
            )


def _named(
    tensors: tuple[PteTensor | None, ...], described: tuple[TensorSpec, ...] | None, kind: str
) -> tuple[Tensor, ...]:
    """With the names of the description, if it has as many."""
    fits = described is not None and len(described) == len(tensors)
    names = [one.name for one in described] if fits and described is not None else None
    return tuple(
        Tensor(names[i] if names else f"{kind}_{i}", _dtype(tensor), _dims(tensor))
        for i, tensor in enumerate(tensors)
    )


def _dtype(tensor: PteTensor | None) -> str:
    """Types that numpy has not are refused where they matter, and told as they are."""
    return tensor.dtype if tensor is not None and _is_numpy(tensor.dtype) else "float32"


def _dims(tensor: PteTensor | None) -> tuple[int | None, ...] | None:
    if tensor is None or tensor.unbounded:
        return None
    return (None,) * len(tensor.sizes) if tensor.varies else tensor.sizes


def _refuse_larger(name: str, tensor: PteTensor, array: NDArray[Any]) -> None:
    if array.size > prod(tensor.sizes) or any(
        size > most for size, most in zip(array.shape, tensor.sizes, strict=True)
    ):
        raise BadInput(
            f"input {name!r} is {array.dtype.name}{list(array.shape)}",
            why=f"at most {list(tensor.sizes)} is taken",
            next="lower the model for larger sizes",
        )


def _is_numpy(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True
