"""Outputs that are not what the original model declares: onnxruntime warns, and gives what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hexport.packaging.manifest import Contract, Tensor

Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""Bucket -> output -> its shape."""


def as_given(contract: Contract, found: Shapes) -> tuple[Contract, tuple[str, ...]]:
    """The contract with the dims left open that the shapes which were ``found`` belie, and what to say."""
    outputs, said = [], []
    for tensor in contract.outputs:
        shapes = [shapes[tensor.name] for shapes in found.values() if tensor.name in shapes]
        false = [shape for shape in shapes if not _can_be(tensor, shape)]
        outputs.append(replace(tensor, dims=None) if false else tensor)
        if false:
            declared, given = _shape(tensor.dims or ()), _shape(false[0])
            said.append(
                f"the model declares {tensor.name} as {declared} and gives {given}: its shape is left open"
            )
    return replace(contract, outputs=tuple(outputs)), tuple(said)


def _can_be(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    if tensor.dims is None:
        return True
    return len(tensor.dims) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(tensor.dims, shape, strict=True)
    )


def _shape(dims: tuple[int | str | None, ...]) -> str:
    return "×".join("?" if dim is None else str(dim) for dim in dims) or "one number"
