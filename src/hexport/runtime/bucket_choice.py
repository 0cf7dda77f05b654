"""Which bucket serves inputs of given shapes: the smallest that no dim is too large for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from hexport.packaging.manifest import Bucket, Contract
from hexport.runtime.failures import BadInput
from hexport.runtime.padding import Shape, pad_values


def choose_bucket(
    buckets: Iterable[Bucket], shapes: Mapping[str, Shape], contract: Contract
) -> Bucket | None:
    """The smallest that takes them, filled up along axes that the contract allows; None: there is none."""
    values = pad_values(contract)
    fitting = (bucket for bucket in buckets if _fits(bucket, shapes, values))
    return min(fitting, key=bucket_volume, default=None)


def dims_of(contract: Contract, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The size that each named dim of the contract has in the inputs."""
    dims: dict[str, int] = {}
    for tensor in contract.inputs:
        for dim, size in zip(tensor.dims or (), shapes.get(tensor.name, ()), strict=False):
            if isinstance(dim, str) and dims.setdefault(dim, size) != size:
                raise BadInput(
                    f"the dim {dim!r} has the sizes {dims[dim]} and {size} in the inputs",
                    why="the contract calls them by one name: they must be the same",
                )
    return dims


def bucket_volume(bucket: Bucket) -> int:
    """How much it takes, by which buckets are ordered."""
    return sum(prod(shape) for shape in bucket.input_shapes.values())


def list_buckets(buckets: Iterable[Bucket]) -> str:
    """For messages."""
    return "; ".join(f"{bucket.name}: {list_shapes(bucket.input_shapes)}" for bucket in buckets)


def list_shapes(shapes: Mapping[str, Shape]) -> str:
    """For messages."""
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


def _fits(bucket: Bucket, shapes: Mapping[str, Shape], values: Mapping[str, Mapping[int, object]]) -> bool:
    return all(
        name in shapes
        and len(full) == len(shapes[name])
        and all(
            size == end or (0 < size < end and axis in values.get(name, {}))
            for axis, (size, end) in enumerate(zip(shapes[name], full, strict=True))
        )
        for name, full in bucket.input_shapes.items()
    )
