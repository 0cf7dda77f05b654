"""Samples cut to smaller sizes: what a smaller input looks like, from a larger one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample
    from hexport.building.signature import Places

Shape = tuple[int, ...]


def shortened(sample: Sample, places: Places, dims: Mapping[str, int]) -> Sample:
    """The first part of every input that has one of ``dims``, in that size."""
    result = dict(sample)
    for dim, size in dims.items():
        for name, axis in places[dim]:
            if name in result:
                result[name] = result[name][(slice(None),) * axis + (slice(size),)]
    return result
