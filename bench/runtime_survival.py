"""Killed workers and repeated loads for ``runtime.py``: every answer right or a typed error, nothing left."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hexport
from hexport.errors import HexportError
from hexport.runtime.loading import load
from hexport.runtime.session import Session
from hexport.runtime.shared_region import PREFIX
from runtime_models import cpu_package, ones, zoo_package

MOST_GROWTH_MB = 10.0
"""From the second round on: each round loads more than a hundred times that."""
_ROUNDS = 5
_SLOW_SECONDS = 3.0
"""A model whose answer takes the simulator longer is loaded there, and asked on the CPU only."""


def kills(folder: Path, requests: int, count: int) -> dict[str, Any]:
    """Requests by several threads while the worker is killed at random."""
    package = cpu_package(folder)
    # What stays loaded, and the heaps of threads, are there now.
    _under_fire(package, max(1, requests // 10), 1)
    before, memory, started = present(), resident_mb(), time.perf_counter()
    fired = _under_fire(package, requests, count)
    took, left, growth = time.perf_counter() - started, left_over(before), resident_mb() - memory
    answered = fired["wrong"] == 0 and fired["right"] + fired["typed_errors"] == requests
    whole = answered and fired["kills"] == count
    return {
        "requests": requests,
        **fired,
        "seconds": round(took, 1),
        **left,
        "growth_mb": round(growth, 1),
        "holds": whole and not any(left.values()) and growth < MOST_GROWTH_MB,
    }


def _under_fire(package: Path, requests: int, count: int) -> dict[str, int]:
    with load(package, "cpu", isolate=True) as session, ThreadPoolExecutor(4) as threads:

        def ask(seed: int) -> bool:
            x = np.random.default_rng(seed).normal(size=(200_000,)).astype(np.float32)
            return bool(np.array_equal(session.run({"x": x})["y"], np.maximum(x, 0)))

        futures = [threads.submit(ask, seed) for seed in range(requests)]
        killed = kill_at_random(session, futures, count)
        right, lost, wrong = counted(futures)
        rebuilt = session.describe().rebuilt
    return {"kills": killed, "right": right, "typed_errors": lost, "wrong": wrong, "rebuilt": rebuilt}


def kill_at_random(session: Session, futures: list[Future[bool]], count: int) -> int:
    """Spread over the requests; each kill is of a worker that was not killed before."""
    rng, killed = random.Random(0), set[int]()
    for number in range(count):
        due = len(futures) * (number + 1) // (count + 1)
        while sum(future.done() for future in futures) < due:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.02))
        while not all(future.done() for future in futures):
            alive = [pid for pid in session.worker_pids() if pid not in killed]
            if alive:
                os.kill(alive[0], signal.SIGKILL)
                killed.add(alive[0])
                break
            time.sleep(0.002)
    return len(killed)


def counted(futures: list[Future[bool]]) -> tuple[int, int, int]:
    """Right, lost with a typed error, wrong. Any other error is a fault of the benchmark's subject."""
    right = lost = wrong = 0
    for future in futures:
        try:
            answer = future.result(600)
        except HexportError:
            lost += 1
            continue
        right, wrong = right + answer, wrong + (not answer)
    return right, lost, wrong


def leak(folder: Path, models: list[str]) -> dict[str, Any]:
    """The packages of the zoo, loaded, asked and closed one after the other, over and over."""
    packages, failed = [], {}
    for name in models:
        try:
            packages.append(zoo_package(folder, name))
        except hexport.HexportError as error:
            failed[name] = f"{error.code} {error.what}"
    slow: set[Path] = set()
    for package in packages:
        started = time.perf_counter()
        _load_once(package, "simulator", isolate=False)
        if time.perf_counter() - started > _SLOW_SECONDS:
            slow.add(package)
    before, memory = present(), []
    for _ in range(_ROUNDS):
        for number, package in enumerate(packages):
            _load_once(package, "cpu", isolate=number % 5 == 4)
            if package not in slow:
                _load_once(package, "simulator", isolate=number % 5 == 3)
        gc.collect()
        memory.append(round(resident_mb(), 1))
    growth, left = memory[-1] - memory[1], left_over(before)
    return {
        "packages": len(packages),
        "loads": _ROUNDS * (2 * len(packages) - len(slow)),
        "not_built": failed,
        "resident_mb_by_round": memory,
        "growth_mb": round(growth, 1),
        **left,
        "holds": growth < MOST_GROWTH_MB and not any(left.values()),
    }


def _load_once(package: Path, backend: str, *, isolate: bool) -> None:
    with load(package, backend, isolate=isolate, say=lambda _: None) as session:
        session.run(ones(session))


@dataclass(frozen=True)
class Present:
    """What there is before something is measured; regions of other programs among it."""

    open_files: int
    shared: frozenset[str]


def present() -> Present:
    files = len(list(Path("/proc/self/fd").iterdir()))
    return Present(files, frozenset(path.name for path in Path("/dev/shm").glob(f"{PREFIX}*")))


def left_over(before: Present) -> dict[str, int]:
    """What should not be there any more."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    now = present()
    return {
        "processes": len(children),
        "shared_files": len(now.shared - before.shared),
        "more_open_files": now.open_files - before.open_files,
    }


def resident_mb(pid: int | str = "self") -> float:
    gc.collect()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
