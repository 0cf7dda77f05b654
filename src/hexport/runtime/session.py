"""A loaded package: run it, ask what runs where, measure it, close it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hexport.errors import UsageError
from hexport.packaging.manifest import Bucket, Contract
from hexport.runtime.admission import MOST_WAITING, Admission
from hexport.runtime.answering import Answering
from hexport.runtime.deadline import Deadline
from hexport.runtime.description import Description, home_of
from hexport.runtime.engine import Engine
from hexport.runtime.failures import SessionClosed
from hexport.runtime.lane import Lane
from hexport.runtime.options import Tuning, absolute
from hexport.runtime.planning import Plan
from hexport.runtime.siblings import Siblings
from hexport.runtime.timing import Bench, measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["Description", "Session"]


class Session:
    """Made by :func:`hexport.load`. Safe to use from several threads; closing it frees everything."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        tell: Callable[[str], None],
        notes: list[str],
        *,
        workers: int,
        allow_cpu: bool,
        load_seconds: float,
        tuning: Tuning,
        again: Callable[[Tuning], Session],
        max_waiting: int = MOST_WAITING,
    ) -> None:
        """Without ``workers`` the engine is this process."""
        self._plan, self._engine = plan, engine
        self._answering = Answering(plan, engine, tell, allow_cpu=allow_cpu)
        self._workers, self._max_waiting = workers, max_waiting
        # In this process each caller's own thread does the work, and none waits for another.
        self._admission = Admission(workers, max_waiting) if workers else None
        self._lane: Lane | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.load_seconds, self._tuning, self._again = load_seconds, tuning, again
        self._siblings = Siblings(again, tell)
        self.notes = notes

    @property
    def contract(self) -> Contract:
        """What is taken and given: the original model's signature."""
        return self._answering.contract

    @property
    def backend(self) -> str:
        return self._plan.choice.backend

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The compiled sizes; none on the CPU, which takes any."""
        return self._answering.buckets

    @property
    def known_buckets(self) -> tuple[Bucket, ...]:
        """The sizes that the package was made for, wherever it runs."""
        return self._plan.package.manifest.buckets

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        performance: str | None = None,
        rpc_latency: int | None = None,
        priority: str | None = None,
        profiling: str | None = None,
        profiling_file: str | Path | None = None,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """The outputs, by name, at the sizes that the original would give them.

        QNN settles priority and profiling when a session is made: a call that asks for its own is answered
        by a further session, which is kept for the next. ``timeout`` is in seconds, for isolated sessions: a
        request that takes longer, waiting or running, is a :class:`DeadlineMissed`. Requests beyond those
        that may wait are each :class:`Busy`, at once.
        """
        self._refuse_closed()
        deadline = None if timeout is None else self._deadline(timeout)
        tuning = _tuning(performance, rpc_latency, priority, profiling, profiling_file)
        return self._for(tuning)._admitted(inputs, tuning, deadline)

    def run_async(
        self, inputs: Mapping[str, object], *, timeout: float | None = None, **options: Any
    ) -> Future[dict[str, Array]]:
        """The same in a thread of the session's own, with the options of :meth:`run`."""
        deadline = None if timeout is None else self._deadline(timeout)
        tuning = _tuning(**options)

        def work() -> dict[str, Array]:
            self._refuse_closed()
            chosen = self._for(tuning)
            if chosen is self:  # and it was let in when it was asked
                return self._answering.answer(inputs, tuning, deadline)
            return chosen._admitted(inputs, tuning, deadline)

        with self._lock:
            self._refuse_closed()
            if self._lane is None:
                threads = self._workers or None
                self._lane = Lane(threads, self._admission, self._max_waiting)
            return self._lane.submit(work, deadline)

    def describe(self) -> Description:
        """What runs where, and what was said."""
        choice, package = self._plan.choice, self._plan.package
        others = [other.describe() for other in self._siblings.all()]
        runs = Counter(self._answering.runs)
        for other in others:
            runs.update(other.runs)
        return Description(
            str(package.folder),
            choice.backend,
            choice.target.name if choice.target else None,
            bool(self._workers),
            home_of(self._plan.interpreter),
            package.manifest.scheme,
            self._plan.places(),
            dict(runs),
            self._engine.rebuilt + sum(other.rebuilt for other in others),
            tuple(self.notes),
        )

    def bench(
        self,
        inputs: Mapping[str, object] | None = None,
        *,
        runs: int = 50,
        threads: int = 1,
    ) -> Bench:
        """Load, first and warm latency, throughput, memory; on ``inputs``, or on ones of a bucket's sizes."""
        if not self._answering.runs:
            return measure(self, inputs, runs=runs, threads=threads)
        with self._again(self._tuning) as fresh:  # what has run already has no first run any more
            return measure(fresh, inputs, runs=runs, threads=threads)

    def close(self) -> None:
        """Free everything. Requests under way are answered first; those that wait find it closed."""
        with self._lock:
            self._closed, lane = True, self._lane
        if lane is not None:
            lane.close()
        self._siblings.close()
        self._answering.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of an isolated session's workers, as far as there are any yet."""
        return getattr(self._engine, "pids", ())

    def _for(self, tuning: Tuning | None) -> Session:
        """The session that answers such a call."""
        if tuning is None or (tuning.priority, tuning.profiling, tuning.profiling_file) == (None, None, None):
            return self
        settled = Tuning(None, tuning.priority, None, tuning.profiling, tuning.profiling_file)
        return self._siblings.get(self._tuning.changed(settled))

    def _admitted(
        self, inputs: Mapping[str, object], tuning: Tuning | None, deadline: Deadline | None
    ) -> dict[str, Array]:
        if self._admission is None:
            return self._answering.answer(inputs, tuning, deadline)
        self._admission.enter()
        try:
            return self._answering.answer(inputs, tuning, deadline)
        finally:
            self._admission.leave()

    def _deadline(self, seconds: float) -> Deadline:
        if not self._workers:
            raise UsageError(
                "a time limit is for isolated sessions",
                why="native code that runs in this process cannot be ended",
                next="load with isolate=True",
            )
        return Deadline(seconds)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SessionClosed("the session was closed", next="load the package again")


def _tuning(
    performance: str | None = None,
    rpc_latency: int | None = None,
    priority: str | None = None,
    profiling: str | None = None,
    profiling_file: str | Path | None = None,
) -> Tuning | None:
    """What one call asks for; None: nothing."""
    if all(one is None for one in (performance, rpc_latency, priority, profiling, profiling_file)):
        return None
    return Tuning(performance, priority, rpc_latency, profiling, absolute(profiling_file))
