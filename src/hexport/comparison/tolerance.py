"""From where on the second side is worse."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from hexport.errors import UsageError

MAX_MORE = 10.0
"""Percent. Two releases lay out the same graph a few percent apart; what users felt was 50 and more."""
MAX_DROP_DB = 3.0
"""Half of the accuracy: twice the noise."""
AS_GOOD_AS_EXACT_DB = 100.0
"""From here on what is left is the order in which fp32 is added up."""


@dataclass(frozen=True)
class Tolerance:
    """How much worse is not worse yet."""

    max_more_percent: float = MAX_MORE
    """Of memory traffic and size."""
    max_drop_db: float = MAX_DROP_DB

    def too_much(self, a: float, b: float) -> bool:
        """Whether an amount that should be small has grown beyond it."""
        return b > a * (1 + self.max_more_percent / 100)

    def too_noisy(self, a: float, b: float) -> bool:
        """Whether a ratio of signal to noise has dropped beyond it."""
        return min(b, AS_GOOD_AS_EXACT_DB) < min(a, AS_GOOD_AS_EXACT_DB) - self.max_drop_db

    def __str__(self) -> str:
        return (
            f"more than {self.max_more_percent:g} % more memory traffic or size, "
            f"or {self.max_drop_db:g} dB less"
        )


def make_tolerance(max_more: str | float, max_drop_db: float) -> Tolerance:
    """From the user's options: ``"10%"`` or ``10``, and decibels."""
    percent = _number(str(max_more).strip().removesuffix("%"))
    if percent is None:
        raise UsageError(
            f"--max-more {max_more}: not understood",
            next="give a percentage, 0 or more: 10 is 10 percent more than on side A",
        )
    if _number(str(max_drop_db)) is None:
        raise UsageError(f"--max-drop-db {max_drop_db}: give decibels, 0 or more")
    return Tolerance(percent, float(max_drop_db))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None
