"""Sessions in a worker process: a native crash costs a restart and never the application."""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hexport.records import from_plain, to_plain
from hexport.runtime import failures
from hexport.runtime.engine import typed
from hexport.runtime.failures import BadInput, EngineLost, SessionClosed
from hexport.runtime.planning import Part
from hexport.runtime.serving import Answer, RunMessage
from hexport.runtime.shared_region import Region, lay_out
from hexport.toolchain import (
    JobFailed,
    Limits,
    Worker,
    WorkerCrashed,
    WorkerExited,
    WorkerProtocolError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

T = TypeVar("T")

_MODULE = "hexport.runtime.serving"
_SMALLEST = 2**20
_DIED = (WorkerCrashed, WorkerExited, WorkerProtocolError)


class _House:
    """The worker and the region: what is made anew together, and goes together."""

    def __init__(self, limits: Limits, parts: Iterable[Part], size: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hexport-")
        self.region: Region | None = None
        self.worker: Worker | None = None
        self.rebuilt = 0
        """How often the worker has made its sessions anew, without dying."""
        try:
            self.worker = Worker(_MODULE, Path(self._folder.name, "native.log"), limits=limits)
            self.widen(size)
            self.worker.call("add", {"parts": to_plain(tuple(parts))})
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        assert self.worker is not None
        return self.worker.pid

    def call(self, job: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self.worker is not None
        return self.worker.call(job, arguments)

    def widen(self, size: int) -> Region:
        """A region of at least ``size`` bytes, at both ends."""
        old, new = self.region, Region.create(size)
        self.region = new
        try:
            self.call("attach", {"path": str(new.path), "size": new.size})
        finally:
            new.forget_name()
            if old is not None:
                old.close()
        return new

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        if self.region is not None:
            self.region.close()
        self._folder.cleanup()


class Isolated:
    """The engine with a process of its own; requests wait for each other."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._parts: dict[str, Part] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._size = _SMALLEST
        self.rebuilt = 0
        self._houses: list[_House] = []
        # Also when nobody closes the session, and when the interpreter ends.
        self._end = weakref.finalize(self, _close_all, self._houses)

    @property
    def pid(self) -> int:
        """Of the worker; 0: there is none yet."""
        return self._houses[0].pid if self._houses else 0

    def add(self, parts: Iterable[Part]) -> None:
        with self._lock:
            new = [part for part in parts if part.name not in self._parts]
            self._parts |= {part.name: part for part in new}
            if new:
                self._twice(lambda house: house.call("add", {"parts": to_plain(tuple(new))}))

    def run(self, part: str, feeds: Mapping[str, Array], options: Mapping[str, str]) -> dict[str, Array]:
        for name, array in feeds.items():
            if array.dtype.kind not in "biufc":
                raise BadInput(f"input {name!r} is text, which an isolated session does not take")
        with self._lock:
            return self._twice(lambda house: self._ask(house, part, feeds, options))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _twice(self, ask: Callable[[_House], T]) -> T:
        """Ask; if the worker dies of it, ask a new one, once."""
        try:
            return self._asked(ask)
        except _DIED:
            self._end_house()
        self.rebuilt += 1
        try:
            return self._asked(ask)
        except _DIED as error:
            self._end_house()
            raise EngineLost(
                "the worker died, and the one after it, too",
                why=error.what,
                next="the inputs that did this make a bug report; the next request starts another worker",
            ) from error

    def _asked(self, ask: Callable[[_House], T]) -> T:
        if self._closed:
            raise SessionClosed("the session was closed", next="load the package again")
        if not self._houses:
            self._houses.append(_House(self._limits, self._parts.values(), self._size))
        try:
            return ask(self._houses[0])
        except JobFailed as error:
            own = getattr(failures, error.kind, None)
            if own is not None:
                raise own("the worker could not run the model", why=error.text) from error
            raise typed(error.kind, error.text, "the worker could not run the model") from error
        except _DIED:
            raise
        except BaseException:
            # Out of time or memory, or interrupted: that worker has been ended.
            self._end_house()
            raise

    def _ask(
        self, house: _House, part: str, feeds: Mapping[str, Array], options: Mapping[str, str]
    ) -> dict[str, Array]:
        spots, needed = lay_out(feeds)
        region = house.region
        assert region is not None
        if needed > region.size:
            region = house.widen(needed)
        region.put(spots, feeds)
        message = RunMessage(part, spots, dict(options))
        answer = from_plain(Answer, house.call("run", to_plain(message)))
        if answer.needed:
            region = house.widen(answer.needed)
            answer = from_plain(Answer, house.call("collect", {}))
        self._size = max(self._size, region.size)
        self.rebuilt += answer.rebuilt - house.rebuilt
        house.rebuilt = answer.rebuilt
        return {spot.name: region.take(spot) for spot in answer.outputs}

    def _end_house(self) -> None:
        _close_all(self._houses)


def _close_all(houses: list[_House]) -> None:
    while houses:
        houses.pop().close()
