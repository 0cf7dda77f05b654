"""How much of an output belongs to inputs of a smaller size: found out from the model itself.

A recogniser of text gives one column for every eight of its picture. The rule is read off the sizes of
outputs at some sizes of an input, as ``(size · multiply + add) // divide``; as long as two rules explain all
that was seen, the model is asked at a size where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

from hexport.packaging.manifest import Crop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Shape = tuple[int, ...]
Rule = tuple[int, int, int]
"""multiply, add, divide."""
_MOST_DIVIDE = 64
_MOST_MULTIPLY = 8
_MOST_LOOKS = 40
"""Sizes that the model is asked at; what is still open then is decided by the proof."""


class NoRule(Exception):
    """An output's size follows from the input's in no way that is known."""


def find_crops(
    dim: str, largest: int, shapes_at: Callable[[int], Mapping[str, Shape] | None]
) -> tuple[Crop, ...]:
    """``shapes_at`` gives the outputs' shapes at a size of ``dim``; None: the model does not take it."""
    asked: dict[int, Mapping[str, Shape] | None] = {}
    waiting = [*dict.fromkeys((largest, max(1, largest // 2), max(1, largest - 1), 1))]
    while waiting:
        asked |= {size: shapes_at(size) for size in waiting}
        seen = {size: shapes for size, shapes in asked.items() if shapes is not None}
        if len(seen) < 2 and len(waiting) > 1:
            raise NoRule("the model takes no other size")
        crops, waiting = [], []
        for output, axis, pairs in _axes(dim, seen):
            rule = find_rule(pairs)
            if rule is None:
                told = ", ".join(f"{size} → {out}" for size, out in sorted(pairs)[:4])
                raise NoRule(f"output {output!r}, axis {axis}: no rule gives its sizes ({dim}: {told}, …)")
            open_size = differing_size(pairs, rule, largest, asked)
            if open_size and len(asked) < _MOST_LOOKS:
                waiting = [open_size]
                break
            if rule[0]:
                crops.append(Crop(output, axis, dim, *rule))
    return tuple(crops)


def find_rule(pairs: Sequence[tuple[int, int]]) -> Rule | None:
    """The simplest that gives all of them; multiply is 0 where the size does not matter."""
    first = next(_rules(pairs), None)
    if first is None:
        return None
    multiply, least, most, divide = first
    return multiply, min(max(0, least), most), divide


def differing_size(
    pairs: Sequence[tuple[int, int]], rule: Rule, largest: int, asked: Mapping[int, object]
) -> int | None:
    """A size, not asked for yet, at which other rules that explain ``pairs`` give something else."""
    import numpy as np

    sizes = np.array([size for size in range(1, largest + 1) if size not in asked], np.int64)
    if not sizes.size:
        return None
    right = _apply(rule, sizes)
    others = [(multiply, add, d) for multiply, *ends, d in _rules(pairs) for add in set(ends)]
    votes = sum((_apply(other, sizes) != right for other in others), np.zeros(sizes.size, np.int64))
    if not votes.any():
        return None
    # Where about half of them differ, either answer leaves half.
    votes = np.where(votes > 0, np.abs(votes - len(others) // 2), len(others) + 1)
    return int(sizes[votes.argmin()])


def _apply(rule: Rule, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    multiply, add, divide = rule
    return (sizes * multiply + add) // divide


def _rules(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(multiply, least add, most add, divide), the simplest first."""
    outs = {out for _, out in pairs}
    if len(outs) == 1:
        yield 0, min(outs), min(outs), 1
    for divide in range(1, _MOST_DIVIDE + 1):
        for multiply in range(1, _MOST_MULTIPLY + 1):
            if gcd(divide, multiply) > 1:
                continue
            # out = ⌊(size·m + a) / d⌋ leaves d numbers for a; all pairs must leave one in common.
            least = max(out * divide - size * multiply for size, out in pairs)
            most = min(out * divide - size * multiply + divide - 1 for size, out in pairs)
            if least <= most:
                yield multiply, least, most, divide


def _axes(
    dim: str, seen: Mapping[int, Mapping[str, Shape]]
) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
    """Every output's every axis, with its sizes."""
    for output, shape in next(iter(seen.values())).items():
        if any(len(shapes[output]) != len(shape) for shapes in seen.values()):
            raise NoRule(f"output {output!r} has another number of dims at other sizes of {dim}")
        for axis in range(len(shape)):
            yield output, axis, [(size, shapes[output][axis]) for size, shapes in seen.items()]
