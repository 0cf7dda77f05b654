"""Example inputs of another size, to see whether a graph is right there, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexport.torch.description import TorchModel
    from hexport.torch.signature import Signature

_LEAST = 2
"""Sizes of 1 are special to many operators; the example may have them, and another size should not."""


def other_sizes(signature: Signature) -> Iterator[dict[str, int]]:
    """Sizes for every symbol that are not the example's, likely ones first."""
    tried: list[dict[str, int]] = []
    for factor, more in ((1.0, 1), (1.0, -1), (2.0, 0), (0.5, 0)):
        sizes = {
            symbol: _within(int(size * factor) + more, signature.ranges.get(symbol))
            for symbol, size in signature.sizes.items()
        }
        if sizes not in (*tried, dict(signature.sizes)):
            tried.append(sizes)
            yield sizes


def _within(size: int, allowed: tuple[int, int | None] | None) -> int:
    smallest, largest = allowed or (0, None)
    size = max(size, smallest, _LEAST)
    return size if largest is None else min(size, largest)


def resized(
    model: TorchModel, signature: Signature, sizes: Mapping[str, int]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs with these sizes: their own numbers, over and over."""
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((tuple(model.args), dict(model.kwargs)))
    for one in signature.inputs:
        for axis, dim in enumerate(one.dims):
            if not isinstance(dim, int):
                leaves[one.leaf] = _repeated(leaves[one.leaf], axis, evaluate(dim, sizes))
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def evaluate(formula: Any, sizes: Mapping[str, int]) -> int:
    """A dim in numbers."""
    import sympy

    return int(
        formula.xreplace({symbol: sympy.Integer(sizes[str(symbol)]) for symbol in formula.free_symbols})
    )


def _repeated(tensor: Any, axis: int, size: int) -> Any:
    import torch

    before = tensor.shape[axis]
    if before == 0:
        shape = [*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]]
        return torch.zeros(shape, dtype=tensor.dtype)
    return tensor.index_select(axis, torch.arange(size) % before)
