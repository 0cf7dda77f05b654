"""When a request must be answered: one moment for all that is done for it."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from math import inf
from typing import TypeVar

from hexport.errors import UsageError
from hexport.runtime.failures import DeadlineMissed

T = TypeVar("T")


class Deadline:
    """``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        if not 0 < seconds < inf:  # not a number, too
            raise UsageError(f"a time limit of {seconds!r} seconds", next="give more than 0, or none at all")
        self.seconds = float(seconds)
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self._end - time.monotonic())

    def missed(self, meanwhile: str) -> DeadlineMissed:
        """The error, with what the time went into."""
        return DeadlineMissed(
            f"the request was not answered within {self.seconds:g} s",
            why=meanwhile,
            next="give it more time, ask less at once, or load with more workers",
        )

    def result(self, future: Future[T], meanwhile: str) -> T:
        """What ``future`` gives, if it does so in time; it goes on otherwise."""
        # Not by the time limit of result(): what it raises then is also what a worker's own may be.
        if not wait([future], self.left()).done:
            raise self.missed(meanwhile)
        return future.result()
