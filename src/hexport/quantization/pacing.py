"""How long it will still take, from how long the steps so far took."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Counts steps of which there are at most so many."""

    def __init__(self, most_steps: int) -> None:
        self._most, self._done, self._began = most_steps, 0, time.perf_counter()

    def step(self) -> str:
        """One more is done; gives what to say of the rest."""
        self._done += 1
        left = max(self._most - self._done, 0)
        if not left:
            return "nearly done"
        seconds = (time.perf_counter() - self._began) / self._done * left
        return f"at most {left} steps, about {_text(seconds)}, to go"


def telling_of_samples(say: Callable[[str], None], count: int) -> Callable[[int, int, int], None]:
    """For ``observe``: says how far it is with ``count`` samples, and how long the rest will take.

    Timed from the end of the first sample on: before it a session is made.
    """
    began: float | None = None

    def tell(done: int, number: int, passes: int) -> None:
        nonlocal began
        runs, now = number * count + done, time.perf_counter()
        began = now if began is None else began
        which = f", pass {number + 1} of {passes}" if passes > 1 else ""
        left = (now - began) / (runs - 1) * (passes * count - runs) if runs > 1 else None
        rest = "" if left is None else f"; about {_text(left)} to go"
        say(f"calibrating: {done} of {count} samples{which}{rest}")

    return tell


def _text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
