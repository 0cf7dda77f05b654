"""Axes merged until a tensor has no more of them than the HTP can address: five."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import onnx_ir as ir

MOST_AXES = 5

Shape = tuple[int, ...]
Step = tuple[Shape, Shape]
"""A shape and the permutation of its axes."""


def has_many_axes(node: ir.Node) -> bool:
    """Whether an input or output is known to have more axes than the HTP addresses."""
    values = (*node.inputs, *node.outputs)
    return any(v is not None and v.shape is not None and len(v.shape) > MOST_AXES for v in values)


def merged_transpose(shape: Sequence[int], perm: Sequence[int]) -> Step:
    """The same movement of data with the fewest axes: ones dropped, neighbours that stay so made one."""
    moved = [axis for axis in perm if shape[axis] != 1]
    runs: list[list[int]] = []
    order = sorted(moved)
    for axis in moved:
        follows = bool(runs) and order.index(axis) == order.index(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    by_place = sorted(runs)
    return tuple(prod(shape[axis] for axis in run) for run in by_place), tuple(map(by_place.index, runs))


def transpose_steps(shape: Sequence[int], perm: Sequence[int]) -> list[Step]:
    """Transposes of at most five axes that together move data as the one given does."""
    steps = []
    now = merged_transpose(shape, perm)
    while len(now[0]) > MOST_AXES:
        move, rest = _best_move(*now)
        steps.append(merged_transpose(now[0], move))
        now = rest
    return [*steps, now]


def _best_move(shape: Shape, perm: Shape) -> tuple[Shape, Step]:
    """Taking one axis to another place which leaves the fewest axes for what is still to do."""
    best: tuple[int, Shape, Step] | None = None
    for source, place in product(range(len(shape)), repeat=2):
        others = [axis for axis in range(len(shape)) if axis != source]
        move = (*others[:place], source, *others[place:])
        moved = tuple(shape[axis] for axis in move)
        rest = merged_transpose(moved, [move.index(axis) for axis in perm])
        if best is None or len(rest[0]) < best[0]:
            best = len(rest[0]), move, rest
    if best is None or best[0] >= len(shape):
        raise ValueError(f"no move brings {perm} nearer")
    return best[1], best[2]


def merged_broadcast(shapes: Sequence[Sequence[int]]) -> list[Shape]:
    """Neighbouring axes made one wherever every operand is broadcast in both or in neither."""
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    runs: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for axis in range(rank):
        size = max(shape[axis] for shape in full)
        if size == 1:
            continue
        spread = tuple(shape[axis] == 1 for shape in full)
        if spread == last:
            runs[-1].append(axis)
        else:
            runs.append([axis])
        last = spread
    return [tuple(prod(shape[axis] for axis in run) for run in runs) for shape in full]
