"""How many requests may be inside a session: those that are served, and a bounded number that waits."""

from __future__ import annotations

import threading

from hexport.errors import UsageError
from hexport.runtime.failures import Busy

MOST_WAITING = 1000
"""Unless told otherwise: more than threads of an application that wait, and few enough to be kept."""


class Admission:
    """Counts; whoever is one too many is refused at once."""

    def __init__(self, served: int, waiting: int) -> None:
        if waiting < 0:
            raise UsageError(f"max_waiting={waiting}", next="give 0, or how many requests may wait")
        self._served, self._waiting = served, waiting
        self._inside = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            if self._inside >= self._served + self._waiting:
                raise Busy(
                    f"{self._inside} requests are served or wait already",
                    why=f"{self._served} at once are served, and {self._waiting} may wait",
                    next="ask again later, or load with more workers or a larger max_waiting",
                )
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
