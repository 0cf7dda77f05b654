"""How long it will still take, from how long the steps so far took."""

from __future__ import annotations

import time


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


def _text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
