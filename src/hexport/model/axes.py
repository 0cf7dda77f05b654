"""Shapes that put a vector along one axis."""

from __future__ import annotations


def along(axis: int, rank: int) -> tuple[int, ...]:
    """What a vector is reshaped to, to be one number for each place along ``axis`` of an array."""
    return tuple(-1 if place == axis % rank else 1 for place in range(rank))
