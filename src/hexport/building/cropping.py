"""How much of an output belongs to inputs of a smaller size: found out from the model itself.

A recogniser of text gives one column for every eight of its picture. The rule is read off the sizes of
outputs at many sizes of an input, as ``(size · multiply + add) // divide``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from hexport.packaging.manifest import Crop

Shape = tuple[int, ...]
_MOST_DIVIDE = 64
_MOST_MULTIPLY = 8


class NoRule(Exception):
    """An output's size follows from the input's in no way that is known."""


def find_crops(dim: str, seen: Mapping[int, Mapping[str, Shape]]) -> tuple[Crop, ...]:
    """``seen`` is the outputs' shapes at sizes of ``dim``, all else being equal."""
    found = []
    first = next(iter(seen.values()))
    for output, shape in first.items():
        if any(len(shapes[output]) != len(shape) for shapes in seen.values()):
            raise NoRule(f"output {output!r} has another number of dims at other sizes of {dim}")
        for axis in range(len(shape)):
            pairs = [(size, shapes[output][axis]) for size, shapes in seen.items()]
            if len({out for _, out in pairs}) == 1:
                continue
            rule = _rule(pairs)
            if rule is None:
                told = ", ".join(f"{size} → {out}" for size, out in pairs[:4])
                raise NoRule(f"output {output!r}, axis {axis}: no rule gives its sizes ({dim}: {told}, …)")
            found.append(Crop(output, axis, dim, *rule))
    return tuple(found)


def _rule(pairs: Sequence[tuple[int, int]]) -> tuple[int, int, int] | None:
    """(multiply, add, divide), the simplest that gives all of them."""
    for divide in range(1, _MOST_DIVIDE + 1):
        for multiply in range(1, _MOST_MULTIPLY + 1):
            if gcd(divide, multiply) > 1:
                continue
            # out = ⌊(size·m + a) / d⌋ leaves d numbers for a; all pairs must leave one in common.
            least = max(out * divide - size * multiply for size, out in pairs)
            most = min(out * divide - size * multiply + divide - 1 for size, out in pairs)
            if least <= most:
                return multiply, min(max(0, least), most), divide
    return None
