"""Work that several requests need: one does it, the others wait, each for as long as it may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait

from hexport.runtime.deadline import Deadline


class Once:
    """Each piece of work has a name, and is done until it has succeeded.

    A request with a deadline leaves the work to a thread, which goes on when the deadline has passed: what
    takes longer than every request may, compiling for instance, would otherwise never be done.
    """

    def __init__(self) -> None:
        self._done: set[str] = set()
        self._under_way: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def do(self, name: str, work: Callable[[], object], deadline: Deadline | None, meanwhile: str) -> None:
        """See that ``work`` is done."""
        while name not in self._done:
            future, ours = self._future_of(name)
            if ours:
                self._begin(name, work, future, in_thread=deadline is not None)
            try:
                if deadline is None:
                    future.result()
                else:
                    deadline.result(future, meanwhile)
            except CancelledError:
                continue  # whoever did it was interrupted

    def wait(self) -> None:
        """Until nothing is under way any more."""
        with self._lock:
            futures = tuple(self._under_way.values())
        wait(futures)

    def _future_of(self, name: str) -> tuple[Future[None], bool]:
        """What to wait for, and whether it is ours to begin."""
        with self._lock:
            future: Future[None] | None = self._under_way.get(name)
            if future is not None:
                return future, False
            future = Future()
            if name in self._done:
                future.set_result(None)
                return future, False
            self._under_way[name] = future
            return future, True

    def _begin(self, name: str, work: Callable[[], object], future: Future[None], *, in_thread: bool) -> None:
        if in_thread:
            threading.Thread(target=self._work, args=(name, work, future), daemon=True).start()
        else:
            self._work(name, work, future)

    def _work(self, name: str, work: Callable[[], object], future: Future[None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - all who wait for it are told
            self._end(name, done=False)
            future.set_exception(error)
        except BaseException:
            self._end(name, done=False)
            future.cancel()
            future.set_running_or_notify_cancel()
            raise
        else:
            self._end(name, done=True)
            future.set_result(None)

    def _end(self, name: str, *, done: bool) -> None:
        with self._lock:
            del self._under_way[name]
            if done:
                self._done.add(name)
