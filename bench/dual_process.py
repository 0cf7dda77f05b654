"""A package in another interpreter: what it survives, and what more than one worker is good for.

    python bench/dual_process.py --toolchain NAME [--calls 2000] [--threads 8] [--kills 10] [--workers 1]

survival  calls by several threads in one session while its workers are killed (kill -9) at random
workers   the same calls through one worker and through several, in turns, for a model that does next to
          nothing and for one that takes some milliseconds
transport 10 MB there and back, to the toolchain and to a worker of this interpreter, in turns

The toolchain is one of `hexport toolchain list`. Prints a line for each figure, and JSON goes to
bench/results/dual_process.json. Needs no network. Linux only. Exit code 1 when something does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import hexport
from arguments import listed
from hexport.runtime.session import Session
from runtime_models import cpu_package
from runtime_speed import in_turns
from runtime_survival import counted, kill_at_random, left_over, present, resident_mb

RESULTS = Path(__file__).parent / "results"
PARTS = ("survival", "workers", "transport")
MOST_GROWTH = 1.1
"""Of the memory after the warm-up."""
_LENGTH = 200_000
_MEGABYTES = 10
_STEPS = 60
_BLOCKS, _BLOCK = 9, 60


def main() -> int:
    """Measure, show, write."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        place = Path(folder)
        measures = {
            "survival": lambda: survival(place, options),
            "workers": lambda: workers(place, options),
            "transport": lambda: transport(place, options),
        }
        results: dict[str, Any] = {"schema_version": 1, **_versions(place, options.toolchain)}
        for part in options.only:
            results[part] = measures[part]()
            _show(part, results[part])
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "dual_process.json"
    file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(f"written: {RESULTS.name}/{file.name}", file=sys.stderr)
    return 0 if all(results[part].get("holds", True) for part in options.only) else 1


def survival(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every call has the right answer or a typed error; memory is flat; nothing is left."""
    package, before, started = cpu_package(folder), present(), time.perf_counter()
    with hexport.load(package, "cpu", toolchain=options.toolchain, workers=options.workers) as session:
        watch = _Watch(session)
        with ThreadPoolExecutor(options.threads) as threads:
            warm = [threads.submit(_ask, session, seed) for seed in range(options.calls // 10)]
            assert all(future.result() for future in warm)
            memory = [_memory(session)]
            futures = [threads.submit(_ask, session, seed) for seed in range(options.calls)]
            killed = kill_at_random(session, futures, options.kills)
            right, lost, wrong = counted(futures)
            memory.append(_memory(session))
        described = session.describe()
        watch.stop()
    left = {**left_over(before), "folders": watch.left(), "workers": len(watch.alive())}
    growth = {name: round(memory[1][name] / memory[0][name], 3) for name in memory[0]}
    answered = not wrong and right + lost == options.calls and killed == options.kills
    return {
        "toolchain": str(described.toolchain),
        "calls": options.calls,
        "threads": options.threads,
        "workers": options.workers,
        "kills": killed,
        "right": right,
        "typed_errors": lost,
        "wrong": wrong,
        "rebuilt": described.rebuilt,
        "seconds": round(time.perf_counter() - started, 1),
        "memory_mb_after_warm_up": memory[0],
        "memory_mb_at_the_end": memory[1],
        "growth": growth,
        "left": left,
        "holds": answered and not any(left.values()) and max(growth.values()) <= MOST_GROWTH,
    }


class _Watch:
    """The workers that there were, and the folders that they had."""

    def __init__(self, session: Session) -> None:
        self._session, self._stop = session, threading.Event()
        self._folders: dict[int, str] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def left(self) -> int:
        return sum(Path(folder).exists() for folder in set(self._folders.values()))

    def alive(self) -> list[int]:
        return [pid for pid in self._folders if Path(f"/proc/{pid}").exists()]

    def _look(self) -> None:
        while not self._stop.wait(0.01):
            for pid in set(self._session.worker_pids()) - set(self._folders):
                try:
                    self._folders[pid] = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - may be gone, and is text
                except OSError:
                    continue


def _ask(session: Session, seed: int) -> bool:
    x = np.random.default_rng(seed).normal(size=_LENGTH).astype(np.float32)
    return bool(np.array_equal(session.run({"x": x})["y"], np.maximum(x, 0)))


def _memory(session: Session) -> dict[str, float]:
    """Of this process, and of a worker on average."""
    each = [resident_mb(pid) for pid in session.worker_pids()]
    return {"this_process": round(resident_mb(), 1), "a_worker": round(statistics.mean(each), 1)}


def workers(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Requests a second by several threads, through one worker and through several."""
    found: dict[str, Any] = {"threads": options.threads, "cores": os.cpu_count()}
    for name, steps, length in (("next to nothing", 0, 1000), ("some milliseconds", _STEPS, 10_000)):
        package, x = cpu_package(folder, steps), np.linspace(-3, 3, length, dtype=np.float32)
        with (
            hexport.load(package, "cpu", toolchain=options.toolchain) as one,
            hexport.load(package, "cpu", toolchain=options.toolchain, workers=2) as two,
            ThreadPoolExecutor(options.threads) as threads,
        ):
            rates: dict[str, list[float]] = {"one": [], "two": []}
            pairs = [("one", one), ("two", two)]
            for block in range(_BLOCKS + 1):
                for label, session in pairs:
                    rate = _rate(session, x, threads)
                    if block:  # the first one starts the workers
                        rates[label].append(rate)
                pairs.reverse()
        ratios = [b / a for a, b in zip(rates["one"], rates["two"], strict=True)]
        found[name] = {
            "one_worker_per_second": round(statistics.median(rates["one"]), 1),
            "two_workers_per_second": round(statistics.median(rates["two"]), 1),
            "ratio": round(statistics.median(ratios), 2),
        }
    return found


def _rate(session: Session, x: Any, threads: ThreadPoolExecutor) -> float:
    started = time.perf_counter()
    for _ in threads.map(lambda _: session.run({"x": x}), range(_BLOCK)):
        pass
    return _BLOCK / (time.perf_counter() - started)


def transport(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The way to another interpreter beside the way to a worker of this one."""
    package = cpu_package(folder)
    x = np.random.default_rng(0).normal(size=_MEGABYTES * 10**6 // 4).astype(np.float32)
    with (
        hexport.load(package, "cpu", toolchain=options.toolchain) as there,
        hexport.load(package, "cpu", isolate=True) as here,
    ):
        for session in (here, there):
            np.testing.assert_array_equal(session.run({"x": x})["y"], np.maximum(x, 0))
            session.run({"x": x})
        turns = in_turns(lambda: here.run({"x": x}), lambda: there.run({"x": x}), 40)
    return {
        "megabytes": _MEGABYTES,
        "this_interpreter_ms": round(turns.one * 1e3, 2),
        "toolchain_ms": round(turns.other * 1e3, 2),
        "ratio": round(turns.other / turns.one, 2),
    }


def _versions(folder: Path, toolchain: str) -> dict[str, str]:
    with hexport.load(cpu_package(folder), "cpu", toolchain=toolchain) as session:
        return {"toolchain": str(session.describe().toolchain), "python": sys.version.split()[0]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--toolchain", required=True, metavar="NAME")
    parser.add_argument("--only", type=listed(PARTS), default=list(PARTS), metavar="A,B")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def _show(part: str, result: dict[str, Any]) -> None:
    print(f"{part}  {'' if 'holds' not in result else 'holds' if result['holds'] else 'does NOT hold'}")
    for name, value in result.items():
        shown = "  ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else value
        if name != "holds":
            print(f"  {name:26}{shown}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
