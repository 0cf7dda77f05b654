"""Inputs filled up to a bucket's sizes, and outputs cut back to their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.packaging.manifest import Contract, Crop

    Array = NDArray[np.generic]

Shape = tuple[int, ...]


def pad(array: Array, shape: Shape, values: Mapping[int, int | float | bool]) -> Array:
    """``array`` at the beginning of an array of ``shape``; ``values`` tells what follows along each axis.

    An axis that is not in ``values`` must have its size already.
    """
    import numpy as np

    if array.shape == shape:
        return array
    for axis, (size, wanted) in enumerate(zip(array.shape, shape, strict=True)):
        if size > wanted or (size != wanted and axis not in values):
            raise ValueError(f"axis {axis} has {size}, and {wanted} is wanted")
        if size < wanted:
            grown = (*array.shape[:axis], wanted, *array.shape[axis + 1 :])
            filled = np.full(grown, values[axis], array.dtype)
            filled[(*(slice(None),) * axis, slice(size))] = array
            array = filled
    return array


def real_size(crop: Crop, dims: Mapping[str, int]) -> int:
    """How much of the output's axis belongs to inputs of these sizes."""
    return (dims[crop.dim] * crop.multiply + crop.add) // crop.divide


def cut(outputs: Mapping[str, Array], contract: Contract, dims: Mapping[str, int]) -> dict[str, Array]:
    """The outputs without what came of the padding; ``dims`` are the sizes before it."""
    result = dict(outputs)
    for crop in contract.crops:
        if crop.dim in dims and crop.output in result:
            array = result[crop.output]
            keep = (slice(None),) * crop.axis + (slice(real_size(crop, dims)),)
            result[crop.output] = array[keep]
    return result


def pad_values(contract: Contract) -> dict[str, dict[int, int | float | bool]]:
    """Input -> axis -> what it is filled up with."""
    found: dict[str, dict[int, int | float | bool]] = {}
    for padding in contract.padding:
        found.setdefault(padding.input, {})[padding.axis] = padding.value
    return found
