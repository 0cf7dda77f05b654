"""Requests that wait: how many may, how long, in which order, and what closing does to them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import small_models as small
from cpu_packages import cpu_package
from hexport.errors import UsageError
from hexport.packaging import manifest as m
from hexport.runtime import house, isolated
from hexport.runtime.admission import Admission
from hexport.runtime.deadline import Deadline
from hexport.runtime.failures import Busy, DeadlineMissed, InferenceFailed, SessionClosed
from hexport.runtime.lane import Lane
from hexport.runtime.loading import load
from hexport.runtime.once import Once
from hexport.runtime.seats import Seats
from hexport.runtime.session import Session
from shared_files import shared_files

posix = pytest.mark.skipif(sys.platform == "win32", reason="stops processes by signals")
X = np.random.default_rng(0).normal(size=100).astype(np.float32)
SHORT = 0.3
LONG = 120.0
"""A machine under load is slow, not wrong."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = Relu(x) of any length, for the CPU."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="relu")]
    model = small.model(nodes, [small.value("x", ["n"])], [small.value("y", ["n"])])
    x, y = (m.Tensor(name, "float32", ("n",)) for name in "xy")
    return cpu_package(model, m.Contract((x,), (y,)), tmp_path_factory.mktemp("relu") / "package")


@pytest.fixture
def opened(package: Path) -> Iterator[Callable[..., Session]]:
    """Sessions that have answered once in every worker's stead: at least one is there."""
    sessions: list[Session] = []

    def make(**options: Any) -> Session:
        sessions.append(load(package, "cpu", isolate=True, **options))
        sessions[-1].run({"x": X})
        return sessions[-1]

    yield make
    for session in sessions:
        for pid in session.worker_pids():
            os.kill(pid, signal.SIGCONT)
        session.close()


def right(outputs: dict[str, Any]) -> bool:
    return bool(np.array_equal(outputs["y"], np.maximum(X, 0)))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def stopped(session: Session) -> int:
    """Its one worker does nothing any more, until it is continued."""
    (pid,) = session.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    return pid


def queued(session: Session) -> int:
    return len(session._engine._seats._queue)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- how many


@posix
def test_beyond_those_that_may_wait_each_is_refused_at_once(opened: Callable[..., Session]) -> None:
    session = opened(max_waiting=2)
    pid = stopped(session)
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(session.run, {"x": X}) for _ in range(3)]
        until(lambda: queued(session) == 2)
        for ask in (session.run, session.run_async):
            began = time.monotonic()
            with pytest.raises(Busy) as caught:
                ask({"x": X})
            assert time.monotonic() - began < 10
            assert "2 may wait" in caught.value.why
        os.kill(pid, signal.SIGCONT)
        assert all(right(future.result(LONG)) for future in futures)
    assert right(session.run({"x": X}))
    assert session.describe().rebuilt == 0


@posix
def test_futures_are_bounded_as_calls_are(opened: Callable[..., Session]) -> None:
    session = opened(max_waiting=4)
    pid = stopped(session)
    futures = [session.run_async({"x": X}) for _ in range(5)]
    with pytest.raises(Busy):
        session.run_async({"x": X})
    with pytest.raises(Busy):
        session.run({"x": X})
    assert futures[-1].cancel()
    os.kill(pid, signal.SIGCONT)
    assert all(right(future.result(LONG)) for future in futures[:-1])
    until(lambda: session._admission._inside == 0)  # type: ignore[union-attr]


def test_futures_in_this_process_are_bounded_too(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with load(package, "cpu", max_waiting=1) as session:
        go_on, run = threading.Event(), session._engine.run
        monkeypatch.setattr(session._engine, "run", lambda *given: go_on.wait(LONG) and run(*given))
        futures = [session.run_async({"x": X}) for _ in range(2)]
        with pytest.raises(Busy):
            session.run_async({"x": X})
        go_on.set()
        assert all(right(future.result(LONG)) for future in futures)


@posix
def test_several_workers_answer_at_once(opened: Callable[..., Session]) -> None:
    session = opened(workers=2)
    first = stopped(session)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(session.run, {"x": X})
        until(lambda: len(session._engine._seats._free) == 1)  # type: ignore[attr-defined]
        assert right(session.run({"x": X}))
        assert len(session.worker_pids()) == 2
        assert not held.done()
        os.kill(first, signal.SIGCONT)
        assert right(held.result(LONG))


def test_wrong_numbers(package: Path) -> None:
    for options in ({"workers": 0}, {"max_waiting": -1}, {"workers": 2, "isolate": False}):
        with pytest.raises(UsageError):
            load(package, "cpu", **{"isolate": True, **options})  # type: ignore[arg-type]


# ---------------------------------------------------------------- how long


@posix
def test_a_deadline_passes_while_others_are_served(opened: Callable[..., Session]) -> None:
    session = opened()
    pid = stopped(session)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(session.run, {"x": X})
        until(lambda: not session._engine._seats._free)  # type: ignore[attr-defined]
        with pytest.raises(DeadlineMissed) as caught:
            session.run({"x": X}, timeout=SHORT)
        assert "had not begun" in caught.value.why
        assert isinstance(caught.value, TimeoutError)
        late = session.run_async({"x": X}, timeout=SHORT)
        assert "had not begun" in str(late.exception(LONG))
        os.kill(pid, signal.SIGCONT)
        assert right(held.result(LONG))
    assert session.worker_pids() == (pid,)
    assert session.describe().rebuilt == 0


@posix
def test_a_deadline_passes_while_it_runs(opened: Callable[..., Session]) -> None:
    session = opened()
    pid = stopped(session)
    with pytest.raises(DeadlineMissed) as caught:
        session.run({"x": X}, timeout=SHORT)
    assert "its worker was ended" in caught.value.why
    assert not Path(f"/proc/{pid}").exists()
    assert right(session.run({"x": X}, timeout=LONG))
    assert pid not in session.worker_pids()
    assert session.describe().rebuilt == 1


def test_workers_are_started_though_every_request_gives_up(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes longer than any of them may would never be done if they ended it."""
    begun, go_on, made = threading.Event(), threading.Event(), []

    class Slow(house.House):
        def __init__(self, *arguments: Any) -> None:
            begun.set()
            assert go_on.wait(LONG)
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(isolated, "House", Slow)
    with load(package, "cpu", isolate=True) as session:
        with pytest.raises(DeadlineMissed, match="not answered within") as caught:
            session.run({"x": X}, timeout=SHORT)
        assert begun.is_set()
        assert "still being started" in caught.value.why
        with pytest.raises(DeadlineMissed):
            session.run({"x": X}, timeout=SHORT)
        go_on.set()
        assert right(session.run({"x": X}, timeout=LONG))
        assert len(made) == 1


def test_what_is_prepared_goes_on_when_the_deadline_has_passed(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling for the simulator, above all; all who need it wait for one."""
    with load(package, "cpu", isolate=True) as session:
        go_on, calls, part = threading.Event(), [], session._plan.cpu_part

        def slow() -> Any:
            calls.append(1)
            assert go_on.wait(LONG)
            return part()

        monkeypatch.setattr(session._plan, "cpu_part", slow)
        for _ in range(2):
            with pytest.raises(DeadlineMissed) as caught:
                session.run({"x": X}, timeout=SHORT)
            assert "made ready" in caught.value.why
        go_on.set()
        assert right(session.run({"x": X}))
        assert calls == [1]


def test_deadlines_that_are_none(package: Path) -> None:
    with load(package, "cpu") as session:
        for ask in (session.run, session.run_async):
            with pytest.raises(UsageError, match="isolated sessions"):
                ask({"x": X}, timeout=1.0)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            Deadline(seconds)


# ---------------------------------------------------------------- closing


@posix
def test_closing_answers_what_runs_and_refuses_what_waits(package: Path) -> None:
    session = load(package, "cpu", isolate=True)
    session.run({"x": X})
    pid = stopped(session)
    folder = session._engine._houses[0]._worker._log.parent  # type: ignore[attr-defined]
    with ThreadPoolExecutor(3) as threads:
        running = threads.submit(session.run, {"x": X})
        until(lambda: not session._engine._seats._free)  # type: ignore[attr-defined]
        waiting = threads.submit(session.run, {"x": X})
        until(lambda: queued(session) == 1)
        closing = threads.submit(session.close)
        assert isinstance(waiting.exception(LONG), SessionClosed)
        assert not running.done()
        assert folder.is_dir()
        os.kill(pid, signal.SIGCONT)
        assert right(running.result(LONG))
        closing.result(LONG)
    assert not Path(f"/proc/{pid}").exists()
    assert not folder.exists()
    assert not shared_files()


@posix
def test_a_worker_that_does_not_let_go_is_ended(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "_PARTING_SECONDS", SHORT)
    session = load(package, "cpu", isolate=True)
    session.run({"x": X})
    pid = stopped(session)
    session.close()
    assert not Path(f"/proc/{pid}").exists()


# ---------------------------------------------------------------- the pieces


def test_seats_are_given_in_the_order_of_asking() -> None:
    seats, served = Seats(1), []
    seat = seats.take(None)

    def ask(number: int) -> None:
        mine = seats.take(None)
        served.append(number)
        seats.give_back(mine)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        until(lambda count=count: len(seats._queue) == count)
    seats.give_back(seat)
    for thread in threads:
        thread.join(LONG)
    assert served == list(range(6))


def test_a_seat_that_is_prepared_is_kept_until_that_is_done() -> None:
    seats: Seats = Seats(1)
    seat = seats.take(None)
    seat.preparing = Future()
    seats.give_back(seat)
    with pytest.raises(DeadlineMissed):
        seats.take(Deadline(0.05))
    seat.preparing.set_result(None)
    assert seats.take(None) is seat


def test_a_lane_forgets_what_came_too_late() -> None:
    """Neither the queue nor the threads' own grows with requests that nobody waits for any more."""
    admission = Admission(1, 3)
    lane, go_on = Lane(1, admission, 0), threading.Event()
    first = lane.submit(lambda: go_on.wait(LONG), None)
    until(first.running)
    for _ in range(5):
        late = [lane.submit(lambda: 1, Deadline(0.02)) for _ in range(3)]
        assert all(isinstance(one.exception(LONG), DeadlineMissed) for one in late)
    assert not lane._queue
    assert lane._pool._work_queue.qsize() <= 3
    last = lane.submit(lambda: 2, Deadline(LONG))
    go_on.set()
    assert (first.result(LONG), last.result(LONG)) == (True, 2)
    lane.close()
    assert admission._inside == 0


def test_work_that_failed_is_tried_again_by_the_next() -> None:
    once, calls = Once(), []

    def work() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise InferenceFailed("not yet")

    with pytest.raises(InferenceFailed):
        once.do("a", work, None, "")
    once.do("a", work, Deadline(LONG), "")
    once.do("a", work, None, "")
    assert len(calls) == 2


def test_work_that_was_interrupted_is_begun_by_another() -> None:
    once, begun, go_on, calls = Once(), threading.Event(), threading.Event(), []

    def interrupted() -> None:
        begun.set()
        assert go_on.wait(LONG)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            once.do("a", interrupted, None, "")

    one = threading.Thread(target=first)
    one.start()
    assert begun.wait(LONG)
    other = threading.Thread(target=once.do, args=("a", lambda: calls.append(1), None, ""))
    other.start()
    go_on.set()
    for thread in (one, other):
        thread.join(LONG)
    assert calls == [1]
