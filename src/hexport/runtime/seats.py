"""Whose turn it is at the workers: first come, first served, and nobody waits longer than it may."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hexport.runtime.deadline import Deadline
from hexport.runtime.failures import SessionClosed

if TYPE_CHECKING:
    from hexport.runtime.house import House


@dataclass(eq=False)
class Seat:
    """The place of one worker; whoever has taken it has the worker to itself."""

    house: House | None = None
    """None: there is no worker yet, or no longer."""
    deserted: bool = False
    """There was one, which is lost."""
    preparing: Future[None] | None = None
    """What a thread does for this seat; it may outlast the request that asked for it."""


@dataclass(eq=False)
class _Waiting:
    """A request in the queue."""

    called: threading.Event = field(default_factory=threading.Event)
    seat: Seat | None = None
    """None, when it is called: the session was closed."""


class Seats:
    """As many as there may be workers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = [Seat() for _ in range(count)]
        self._queue: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        self._all_back = threading.Condition(self._lock)
        self._closed = False

    def take(self, deadline: Deadline | None) -> Seat:
        """A seat, as soon as it is this request's turn."""
        with self._lock:
            if self._closed:
                raise _closed()
            if self._free:
                # The one that was used last: its worker is there already.
                return self._free.pop()
            waiting = _Waiting()
            self._queue.append(waiting)
        try:
            in_time = waiting.called.wait(None if deadline is None else deadline.left())
        except BaseException:
            if not self._leave(waiting) and waiting.seat is not None:
                self.give_back(waiting.seat)
            raise
        if not in_time and self._leave(waiting):
            assert deadline is not None
            raise deadline.missed("it waited for other requests, and had not begun")
        if waiting.seat is None:
            raise _closed()
        return waiting.seat

    def give_back(self, seat: Seat) -> None:
        """Once it is ready for the next request."""
        if seat.preparing is not None and not seat.preparing.done():
            seat.preparing.add_done_callback(lambda _: self._free_up(seat))
        else:
            self._free_up(seat)

    def close(self) -> None:
        """Nobody is let in any more; those who wait are told, and those who have a seat are waited for."""
        with self._lock:
            self._closed = True
            while self._queue:
                self._queue.popleft().called.set()
            self._all_back.wait_for(lambda: len(self._free) == self._count)

    def _free_up(self, seat: Seat) -> None:
        seat.preparing = None
        with self._lock:
            if self._queue:
                waiting = self._queue.popleft()
                waiting.seat = seat
                waiting.called.set()
            else:
                self._free.append(seat)
                self._all_back.notify_all()

    def _leave(self, waiting: _Waiting) -> bool:
        """Out of the queue; False: it was called at that very moment."""
        with self._lock:
            if waiting in self._queue:
                self._queue.remove(waiting)
                return True
            return False


def _closed() -> SessionClosed:
    return SessionClosed("the session was closed", next="load the package again")
