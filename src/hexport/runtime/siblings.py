"""Further sessions of a package, for calls that ask for what QNN settles when a session is made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hexport.runtime.failures import SessionClosed
from hexport.runtime.options import Tuning

if TYPE_CHECKING:
    from hexport.runtime.session import Session


class Siblings:
    """Made when first asked for, and kept until the session that they belong to is closed."""

    def __init__(self, make: Callable[[Tuning], Session], tell: Callable[[str], None]) -> None:
        self._make, self._tell = make, tell
        self._open: dict[Tuning, Session] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, tuning: Tuning) -> Session:
        """The session for calls that are to be answered so."""
        with self._lock:
            if self._closed:
                raise SessionClosed("the session was closed", next="load the package again")
            if tuning not in self._open:
                self._open[tuning] = self._make(tuning)
                self._tell(
                    "calls with a priority or profiling of their own are answered by further sessions, "
                    "which stay loaded until this one is closed"
                )
            return self._open[tuning]

    def all(self) -> tuple[Session, ...]:
        """Those that are open."""
        with self._lock:
            return tuple(self._open.values())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions, self._open = tuple(self._open.values()), {}
        for session in sessions:
            session.close()
