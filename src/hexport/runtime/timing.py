"""How long a session takes: to load, for its first answer, warm, and with several threads at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.errors import UsageError
from hexport.packaging.manifest import Contract
from hexport.records import to_plain
from hexport.runtime.failures import BadInput
from hexport.runtime.requests import as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.runtime.session import Session

    Array = NDArray[Any]

_WARM_UP = 3


@dataclass(frozen=True)
class Bench:
    """Milliseconds and requests a second, on the machine that measured them."""

    backend: str
    shapes: dict[str, tuple[int, ...]]
    load_ms: float
    """Reading and checking the package; sessions are opened by the first run."""
    first_ms: float
    median_ms: float
    p90_ms: float
    p99_ms: float
    runs: int
    threads: int
    per_second: float
    """Requests answered by all threads together."""
    memory_mb: float | None
    """Of this process and the workers together; None: this system does not say."""
    note: str = ""

    def to_json(self) -> dict[str, object]:
        return {"schema_version": 1, **to_plain(self)}


def measure(session: Session, inputs: Mapping[str, object] | None, *, runs: int, threads: int) -> Bench:
    """On a session that has not run yet."""
    if runs < 1 or threads < 1:
        raise UsageError(f"{runs} runs by {threads} threads: one is the least")
    given = inputs if inputs is not None else _ones(session)
    first = _timed(session, given)
    for _ in range(min(_WARM_UP, runs)):
        session.run(given)
    times = sorted(_timed(session, given) for _ in range(runs))
    median, p90, p99 = (float(np.percentile(times, share)) for share in (50, 90, 99))
    rate = _throughput(session, given, runs, threads)
    simulated = session.backend == "simulator"
    return Bench(
        session.backend,
        {name: as_array(name, value).shape for name, value in given.items()},
        session.load_seconds * 1e3,
        first * 1e3,
        median * 1e3,
        p90 * 1e3,
        p99 * 1e3,
        runs,
        threads,
        rate,
        _memory_mb(session),
        "times of the simulator are the host's own and say nothing about an NPU" if simulated else "",
    )


def _timed(session: Session, inputs: Mapping[str, object]) -> float:
    started = time.perf_counter()
    session.run(inputs)
    return time.perf_counter() - started


def _throughput(session: Session, inputs: Mapping[str, object], runs: int, threads: int) -> float:
    def work(_: int) -> None:
        session.run(inputs)

    count = max(runs, threads)
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        for _ in pool.map(work, range(count)):
            pass
        return count / (time.perf_counter() - started)


def _ones(session: Session) -> dict[str, Array]:
    """Inputs of a bucket's sizes; on the CPU of the smallest bucket's, or of fixed sizes."""
    buckets = session.buckets or session.known_buckets
    shapes = dict(buckets[0].input_shapes) if buckets else _fixed(session.contract)
    dtypes = {tensor.name: tensor.dtype for tensor in session.contract.inputs}
    return {name: np.ones(shape, dtypes[name]) for name, shape in shapes.items()}


def _fixed(contract: Contract) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for tensor in contract.inputs:
        sizes = tuple(dim for dim in tensor.dims or (None,) if isinstance(dim, int))
        if tensor.dims is None or len(sizes) != len(tensor.dims):
            raise BadInput(f"which size shall {tensor.name!r} have?", next="give inputs to measure with")
        shapes[tensor.name] = sizes
    return shapes


def _memory_mb(session: Session) -> float | None:
    if sys.platform != "linux":
        return None
    pids = (os.getpid(), *session.worker_pids())
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
