"""The original model's inputs and outputs, every dynamic dim with a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hexport.model import Graph, Model
from hexport.model.dims import is_anonymous
from hexport.model.graph import TensorType
from hexport.packaging.manifest import FrozenInput, Number, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Places = dict[str, tuple[tuple[str, int], ...]]
"""Dim -> the inputs and axes that have it."""
Sums = dict[str, tuple[str | int, ...]]
"""Dim -> the dims and numbers that add up to it."""


def named(graph: Graph) -> Graph:
    """The same graph; an input's dim without a name is called INPUT.AXIS, so that sizes can be asked for."""
    inputs = {name: _named(name, tensor) for name, tensor in graph.inputs.items()}
    return replace(graph, inputs=inputs)


def _named(name: str, tensor: TensorType) -> TensorType:
    if tensor.shape is None:
        return tensor
    dims = (f"{name}.{axis}" if is_anonymous(dim) else dim for axis, dim in enumerate(tensor.shape))
    return TensorType(tensor.dtype, tuple(dims))


def places(graph: Graph) -> Places:
    """Where each dynamic dim of a :func:`named` graph is."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, tensor in graph.inputs.items():
        for axis, dim in enumerate(tensor.shape or ()):
            if isinstance(dim, str):
                found.setdefault(dim, []).append((name, axis))
    return {dim: tuple(where) for dim, where in found.items()}


def sums(graph: Graph) -> Sums:
    """Dims that are called by the sum of others, as a decoder's mask has ``past + sequence``."""
    known = places(graph)
    found: Sums = {}
    for name in known:
        terms = [term.strip() for term in name.split("+")]
        if len(terms) > 1 and all(term in known or term.isdecimal() for term in terms):
            found[name] = tuple(int(term) if term.isdecimal() else term for term in terms)
    return found


def with_sums(dims: Mapping[str, int], sums: Sums) -> dict[str, int]:
    """``dims``, and those that they add up to."""
    found = dict(dims)
    for name, terms in sums.items():
        if all(isinstance(term, int) or term in dims for term in terms):
            found[name] = sum(term if isinstance(term, int) else dims[term] for term in terms)
    return found


def completed(dims: Mapping[str, int], around: Mapping[str, int], sums: Sums) -> dict[str, int]:
    """``dims``, and the sums that they change where all other dims are as in ``around``."""
    every = with_sums({**around, **dims}, sums)
    return {dim: size for dim, size in every.items() if dim in dims or dim in sums}


def tensors(
    source: Model, graph: Graph, frozen: Mapping[str, NDArray[np.generic]]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[FrozenInput, ...]]:
    """Inputs that a caller gives, outputs, and inputs that are settled."""
    inputs = tuple(
        Tensor(name, tensor.dtype, tensor.shape, name in source.defaults)
        for name, tensor in graph.inputs.items()
        if name not in frozen
    )
    outputs = tuple(
        Tensor(name, tensor.dtype, None if tensor.shape is None else tuple(_plain(d) for d in tensor.shape))
        for name, tensor in source.graph.outputs.items()
    )
    settled = tuple(
        FrozenInput(name, array.dtype.name, array.shape, tuple(_number(v) for v in array.ravel().tolist()))
        for name, array in frozen.items()
    )
    return inputs, outputs, settled


def _plain(dim: int | str | None) -> int | str | None:
    return None if is_anonymous(dim) and not isinstance(dim, int) else dim


def _number(value: Number) -> Number | str:
    """JSON has no number for these."""
    return value if value == value and value not in (float("inf"), float("-inf")) else str(value)
