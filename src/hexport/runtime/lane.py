"""Requests that nobody waits for yet: threads of the session answer them in order, each in time or never."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Any

from hexport.runtime.admission import Admission
from hexport.runtime.deadline import Deadline


@dataclass(eq=False)
class _Item:
    work: Callable[[], Any]
    deadline: Deadline | None
    future: Future[Any]

    def left(self) -> float:
        return inf if self.deadline is None else self.deadline.left()


class Lane:
    """A queue, and threads that work it off.

    ``admission`` is that of the session, where requests wait for workers; otherwise they wait for a thread.
    """

    def __init__(self, threads: int | None, admission: Admission | None, max_waiting: int) -> None:
        count = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="hexport")
        self._admission = admission or Admission(count, max_waiting)
        self._queue: deque[_Item] = deque()
        self._calls = 0
        """Of ``_next`` that the threads have before them; at least one for each in the queue."""
        self._changed = threading.Condition()
        self._watched_until = inf
        """When the watch looks again."""
        self._watching = False

    def submit(self, work: Callable[[], Any], deadline: Deadline | None) -> Future[Any]:
        """What ``work`` gives, some day; too many in here, and it is refused at once."""
        self._admission.enter()
        item = _Item(work, deadline, Future())
        with self._changed:
            self._queue.append(item)
            if self._calls < len(self._queue):
                self._calls += 1
                self._pool.submit(self._next)
            if deadline is not None:
                self._see_to(deadline)
        return item.future

    def close(self) -> None:
        """Wait for all of them."""
        self._pool.shutdown(wait=True)

    def _next(self) -> None:
        with self._changed:
            self._calls -= 1
            if not self._queue:
                return  # it was too late for one
            item = self._queue.popleft()
        begins = item.future.set_running_or_notify_cancel()
        try:
            result = item.work() if begins else None
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result has it
            self._admission.leave()
            item.future.set_exception(error)
        else:
            self._admission.leave()
            if begins:
                item.future.set_result(result)

    def _see_to(self, deadline: Deadline) -> None:
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, daemon=True).start()
        elif time.monotonic() + deadline.left() < self._watched_until:
            self._changed.notify_all()

    def _watch(self) -> None:
        """While there is one with a deadline in the queue."""
        while True:
            with self._changed:
                left = min((item.left() for item in self._queue), default=inf)
                if left == inf:
                    self._watching = False
                    return
                self._watched_until = time.monotonic() + left
                self._changed.wait(left)
                late = [item for item in self._queue if not item.left()]
                for item in late:
                    self._queue.remove(item)
            for item in late:
                self._refuse(item)

    def _refuse(self, item: _Item) -> None:
        assert item.deadline is not None
        begins = item.future.set_running_or_notify_cancel()
        self._admission.leave()
        if begins:
            item.future.set_exception(item.deadline.missed("it waited for other requests, and had not begun"))
