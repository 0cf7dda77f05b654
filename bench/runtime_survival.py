"""Killed workers and repeated loads for ``runtime.py``: every answer right or a typed error, nothing left."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import hexport
from hexport.runtime.failures import RunError
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
    _under_fire(
        package, max(1, requests // 10), 1
    )  # what stays loaded, and the heaps of threads, are there now
    before, memory, started = _open_files(), _resident_mb(), time.perf_counter()
    fired = _under_fire(package, requests, count)
    took, left, growth = time.perf_counter() - started, _left(before), _resident_mb() - memory
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
        killed = _kill(session, futures, count)
        right, lost, wrong = _counted(futures)
        rebuilt = session.describe().rebuilt
    return {"kills": killed, "right": right, "typed_errors": lost, "wrong": wrong, "rebuilt": rebuilt}


def _kill(session: Session, futures: list[Future[bool]], count: int) -> int:
    """Spread over the requests; each kill is of a worker that was not killed before."""
    rng, killed = random.Random(0), set[int]()
    for number in range(count):
        due = len(futures) * (number + 1) // (count + 1)
        while sum(future.done() for future in futures) < due:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.02))
        while not all(future.done() for future in futures):
            pid = session.worker_pid()
            if pid and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                break
            time.sleep(0.002)
    return len(killed)


def _counted(futures: list[Future[bool]]) -> tuple[int, int, int]:
    """Right, lost with a typed error, wrong. Any other error is a fault of the benchmark's subject."""
    right = lost = wrong = 0
    for future in futures:
        try:
            answer = future.result(600)
        except RunError:
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
    before, memory = _open_files(), []
    for _ in range(_ROUNDS):
        for number, package in enumerate(packages):
            _load_once(package, "cpu", isolate=number % 5 == 4)
            if package not in slow:
                _load_once(package, "simulator", isolate=number % 5 == 3)
        gc.collect()
        memory.append(round(_resident_mb(), 1))
    growth, left = memory[-1] - memory[1], _left(before)
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


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _left(before: int) -> dict[str, int]:
    """What should not be there any more."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "processes": len(children),
        "shared_files": len(list(Path("/dev/shm").glob(f"{PREFIX}*"))),
        "more_open_files": _open_files() - before,
    }


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
