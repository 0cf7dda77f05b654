"""Sessions in worker processes: a native crash costs a restart and never the application."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hexport.runtime import failures
from hexport.runtime.engine import typed
from hexport.runtime.failures import BadInput, EngineLost, RunError
from hexport.runtime.house import House
from hexport.runtime.parts import Part
from hexport.runtime.seats import Seat, Seats
from hexport.toolchain import (
    Interpreter,
    JobFailed,
    Limits,
    WorkerCrashed,
    WorkerExited,
    WorkerProtocolError,
    WorkerTimeout,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.runtime.deadline import Deadline

    Array = NDArray[Any]

_DIED = (WorkerCrashed, WorkerExited, WorkerProtocolError)


class Isolated:
    """The engine with processes of its own, all in one interpreter; each answers one request at a time."""

    def __init__(
        self, limits: Limits | None = None, interpreter: Interpreter | None = None, workers: int = 1
    ) -> None:
        self._limits, self._interpreter = limits or Limits(), interpreter
        self._parts: dict[str, Part] = {}
        self._seats = Seats(workers)
        self._lock = threading.Lock()
        self._size = 0
        self.rebuilt = 0
        self._houses: list[House] = []
        # Also when nobody closes the session, and when the interpreter ends.
        self._end = weakref.finalize(self, _close_all, self._houses)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the workers that there are at the moment."""
        with self._lock:
            return tuple(house.pid for house in self._houses)

    def add(self, parts: Iterable[Part]) -> None:
        with self._lock:
            for part in parts:
                self._parts.setdefault(part.name, part)

    def run(
        self,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        deadline: Deadline | None = None,
        /,
    ) -> dict[str, Array]:
        for name, array in feeds.items():
            if array.dtype.kind not in "biufc":
                raise BadInput(f"input {name!r} is text, which an isolated session does not take")
        seat = self._seats.take(deadline)
        try:
            return self._twice(seat, part, feeds, options, deadline)
        finally:
            self._seats.give_back(seat)

    def close(self) -> None:
        """Requests that have begun are answered, those that wait are not."""
        self._seats.close()
        with self._lock:
            houses = tuple(self._houses)
        for house in houses:
            self._remove(house, gently=True)
        self._end()

    def _twice(
        self,
        seat: Seat,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        deadline: Deadline | None,
    ) -> dict[str, Array]:
        """Ask; if the worker dies of it, ask a new one, once."""
        with contextlib.suppress(*_DIED):
            return self._ask(seat, part, feeds, options, deadline)
        try:
            return self._ask(seat, part, feeds, options, deadline)
        except _DIED as error:
            raise EngineLost(
                "the worker died, and the one after it, too",
                why=error.what,
                next="the inputs that did this make a bug report; the next request starts another worker",
            ) from error

    def _ask(
        self,
        seat: Seat,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        deadline: Deadline | None,
    ) -> dict[str, Array]:
        house = seat.house
        if house is None or not house.has_open(part):
            house = self._prepared(seat, part, deadline)
        if deadline is not None and not deadline.left():
            raise deadline.missed("its worker was just ready")  # which need not be ended, as nothing runs yet
        before = house.rebuilt
        try:
            return house.ask(part, feeds, options, deadline)
        except JobFailed as error:
            raise self._known(error, seat) from error
        except RunError:
            raise  # there is no room for the tensors; the worker is well
        except WorkerTimeout as error:
            self._vacate(seat)
            if deadline is None or deadline.left():
                raise
            raise deadline.missed("it was running; its worker was ended, and is replaced") from error
        except BaseException:
            # Dead, out of memory, or its caller was interrupted: that worker is not asked again.
            self._vacate(seat)
            raise
        finally:
            with self._lock:
                self.rebuilt += house.rebuilt - before
                self._size = max(self._size, house.size)

    def _prepared(self, seat: Seat, part: str, deadline: Deadline | None) -> House:
        """A worker with ``part`` loaded.

        That takes as long as it takes: if a deadline ended it, a session whose requests all have shorter ones
        would never answer any. So a thread does it, and keeps the seat until it is done.
        """
        if deadline is None:
            self._prepare(seat, part)
        else:
            future: Future[None] = Future()
            seat.preparing = future

            def work() -> None:
                try:
                    self._prepare(seat, part)
                except BaseException as error:  # noqa: BLE001 - the request that waits for it raises it
                    future.set_exception(error)
                else:
                    future.set_result(None)

            threading.Thread(target=work, daemon=True).start()
            deadline.result(future, "its worker was still being started")
        assert seat.house is not None
        return seat.house

    def _prepare(self, seat: Seat, part: str) -> None:
        try:
            if seat.house is None:
                seat.house = House(self._limits, self._interpreter, self._size)
                with self._lock:
                    self._houses.append(seat.house)
                    self.rebuilt += seat.deserted
                seat.deserted = False
            with self._lock:
                parts = tuple(self._parts.values())
            seat.house.open(part, parts)
        except JobFailed as error:
            raise self._known(error, seat) from error
        except BaseException:
            self._vacate(seat)
            raise

    def _known(self, error: JobFailed, seat: Seat) -> Exception:
        """The error that a job's own stands for."""
        if error.kind == WorkerProtocolError.__name__:
            self._vacate(seat)
            return WorkerProtocolError("the worker did not understand what it was asked", why=error.text)
        own = getattr(failures, error.kind, None)
        what = "the worker could not run the model"
        if isinstance(own, type) and issubclass(own, RunError):
            return own(what, why=error.text)
        return typed(error.kind, error.text, what)

    def _vacate(self, seat: Seat) -> None:
        if seat.house is not None:
            self._remove(seat.house)
            seat.house, seat.deserted = None, True

    def _remove(self, house: House, *, gently: bool = False) -> None:
        house.close(gently=gently)
        with self._lock:
            if house in self._houses:
                self._houses.remove(house)


def _close_all(houses: list[House]) -> None:
    while houses:
        houses.pop().close()
