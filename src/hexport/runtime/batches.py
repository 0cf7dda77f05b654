"""Batches larger than what was compiled, cut into pieces that fit.

Only an axis that the model itself calls a batch is cut: the first of every input and output, and nowhere
else. That rows do not see each other is what the word means; no other dim may be taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.packaging.manifest import Bucket, Contract, Tensor
from hexport.runtime.bucket_choice import bucket_volume, choose_bucket
from hexport.runtime.requests import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Piece:
    """Rows of a batch, for one bucket."""

    request: Request
    bucket: Bucket
    rows: int
    """How many of the rows are real; the others repeat the last."""


def batch_dim(contract: Contract) -> str | None:
    """The dim that is the batch, if the model has one."""
    every = [*contract.inputs, *contract.outputs]
    first = {tensor.dims[0] if tensor.dims else None for tensor in every}
    if len(first) != 1 or not contract.inputs:
        return None
    (dim,) = first
    if not isinstance(dim, str) or "batch" not in dim.lower():
        return None
    return None if any(_again(tensor, dim) for tensor in every) else dim


def split_batch(request: Request, buckets: Sequence[Bucket], contract: Contract) -> tuple[Piece, ...] | None:
    """The request in pieces; None when it is not the batch that is too large."""
    dim = batch_dim(contract)
    total = request.dims.get(dim, 0) if dim else 0
    if dim is None or total < 1:
        return None
    for bucket in sorted(buckets, key=lambda bucket: (-bucket.dims.get(dim, 0), bucket_volume(bucket))):
        step = bucket.dims.get(dim, 0)
        if step and _takes(bucket, request, contract, step):
            starts = range(0, total, step)
            return tuple(_piece(request, bucket, dim, start, step, total) for start in starts)
    return None


def join_batch(pieces: Sequence[Piece], results: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """The outputs of the whole batch."""
    return {
        name: np.concatenate([got[name][: piece.rows] for piece, got in zip(pieces, results, strict=True)])
        for name in results[0]
    }


def _takes(bucket: Bucket, request: Request, contract: Contract, step: int) -> bool:
    shapes = {name: (step, *array.shape[1:]) for name, array in request.arrays.items()}
    return choose_bucket([bucket], shapes, contract) is not None


def _piece(request: Request, bucket: Bucket, dim: str, start: int, step: int, total: int) -> Piece:
    rows = min(step, total - start)
    arrays = {name: _rows(array, start, rows, step) for name, array in request.arrays.items()}
    return Piece(Request(arrays, {**request.dims, dim: step}), bucket, rows)


def _rows(array: Array, start: int, rows: int, step: int) -> Array:
    part = array[start : start + rows]
    return part if rows == step else np.concatenate([part, np.repeat(part[-1:], step - rows, axis=0)])


def _again(tensor: Tensor, dim: str) -> bool:
    return dim in (tensor.dims or ())[1:]
