"""A row of the table: one figure of both sides, how it changed, and whether that is worse."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from hexport.errors import HexportError
from hexport.observe.decibels import finite

Unit = Literal["answer", "count", "percent", "bytes", "seconds", "db", "operators"]
Value = bool | int | float | dict[str, int]
_AMOUNTS = ("bytes", "seconds")
"""What is compared as a ratio; anything else as a difference."""
_LONGEST_REASON = 300
"""ONNX Runtime names its C++ functions in full."""


@dataclass(frozen=True)
class Cell:
    """One side's figure; None where it has none, and then the note says why. Never a zero in its place."""

    value: Value | None = None
    note: str = ""

    @property
    def number(self) -> float | None:
        value = self.value
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Row:
    """One figure."""

    figure: str
    """What programs call it."""
    label: str
    """What people do."""
    unit: Unit
    a: Cell
    b: Cell
    worse: str = ""
    """Why B is worse than A beyond the tolerance; empty: it is not, or this figure is not judged."""

    @property
    def ratio(self) -> float | None:
        """B to A, of amounts that there is something of."""
        a, b = self.a.number, self.b.number
        if self.unit not in _AMOUNTS or a is None or b is None or a <= 0:
            return None
        return b / a

    @property
    def difference(self) -> float | None:
        """B less A."""
        a, b = self.a.number, self.b.number
        return None if a is None or b is None or not isfinite(a) or not isfinite(b) else b - a

    def to_json(self) -> dict[str, object]:
        return {
            "figure": self.figure,
            "label": self.label,
            "unit": self.unit,
            "a": _plain(self.a),
            "b": _plain(self.b),
            "ratio": self.ratio,
            "difference": self.difference,
            "worse": bool(self.worse),
            "why": self.worse,
            "notes": {side: cell.note for side, cell in (("a", self.a), ("b", self.b)) if cell.note},
        }


def in_a_line(error: HexportError) -> str:
    """What a table has room for; the document of ``--json`` has all of it."""
    (why, *_) = error.why.splitlines() or [""]
    short = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}…"
    return f"{error.code} {error.what}" + (f": {short}" if short else "")


def _plain(cell: Cell) -> object:
    return finite(cell.value) if isinstance(cell.value, float) else cell.value
