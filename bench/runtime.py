"""What the runtime costs, what its isolation costs, and what it survives; both sides of each in one run.

    python bench/runtime.py [--only overhead,transport,…] [--models a,b] [--requests 1000] [--kills 20]

overhead   session.run beside a bare ONNX Runtime session on the same context model, in turns
transport  10 MB through an isolated session beside the same model behind a pipe of JSON and base64
load       loading the package of each zoo model beside compiling that model
kills      requests by several threads while the worker is killed at random
leak       loading, running and closing packages over and over: memory, processes, shared files

JSON goes to bench/results/runtime.json.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hexport
from hexport import facts, zoo
from hexport.backend.sessions import add_provider
from hexport.runtime.failures import RunError
from hexport.runtime.loading import load
from hexport.runtime.shared_region import PREFIX
from runtime_models import SHAPE, TARGET, built, convolution, cpu_package

RESULTS = Path(__file__).parent / "results"
PARTS = ("overhead", "transport", "load", "kills", "leak")
ALLOWED_SHARE, ALLOWED_US = 0.03, 50.0
MEGABYTES = 10
MOST_GROWTH_MB = 10.0
"""Over 60 loads; the model and its session have more than that each time."""


def main() -> None:
    """Measure, show, write."""
    options = _options()
    measures: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
        "overhead": _overhead,
        "transport": _transport,
        "load": _load,
        "kills": _kills,
        "leak": _leak,
    }
    packages = {name: version(name) for name in ("onnxruntime", "onnxruntime-qnn")}
    results: dict[str, Any] = {"packages": packages}
    for part in options.only:
        with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
            results[part] = measures[part](Path(folder), options)
        print(f"{part}: {json.dumps(results[part])}", flush=True)
    name = "runtime.json" if options.only == list(PARTS) and not options.models else "runtime-some.json"
    (RESULTS / name).write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(f"written: {RESULTS.name}/{name}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), metavar="A,B")
    parser.add_argument("--models", type=lambda text: text.split(","), default=[], metavar="A,B")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    if wrong := [part for part in options.only if part not in PARTS]:
        parser.error(f"{wrong[0]}: there are {', '.join(PARTS)}")
    return options


def _overhead(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """In turns, so that whatever else the machine does is the same for both."""
    package = built(convolution(folder / "conv.onnx"), folder)
    context = next(package.glob(f"{TARGET}/*_ctx.onnx"))
    x = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    with load(package, "simulator", say=print) as session:
        session.run(x)
        chosen = onnxruntime.SessionOptions()
        soc = str(facts.find_target(TARGET).soc_model)
        add_provider(onnxruntime, chosen, {"backend_type": "htp", "soc_model": soc})
        bare = onnxruntime.InferenceSession(str(context), chosen, enable_fallback=0)
        plain, ours = _in_turns(lambda: bare.run(None, x), lambda: session.run(x), options.runs)
    allowed = max(ALLOWED_SHARE * plain * 1e6, ALLOWED_US)
    return {
        "bare_us": round(plain * 1e6, 1),
        "session_us": round(ours * 1e6, 1),
        "overhead_us": round((ours - plain) * 1e6, 1),
        "allowed_us": round(allowed, 1),
        "holds": (ours - plain) * 1e6 <= allowed,
    }


def _transport(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    package = cpu_package(folder)
    x = np.random.default_rng(0).normal(size=(MEGABYTES * 10**6 // 4,)).astype(np.float32)
    command = [sys.executable, str(Path(__file__).with_name("runtime_pipe.py"))]
    model = str(package / "models/cpu.onnx")
    with (
        load(package, "cpu", isolate=True) as session,
        subprocess.Popen([*command, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pipe,
    ):
        np.testing.assert_array_equal(session.run({"x": x})["y"], _through_pipe(pipe, x))
        runs = max(5, options.runs // 50)
        slow, fast = _in_turns(lambda: _through_pipe(pipe, x), lambda: session.run({"x": x}), runs)
        assert pipe.stdin is not None
        pipe.stdin.close()
    ratio = slow / fast
    return {
        "megabytes": MEGABYTES,
        "pipe_ms": round(slow * 1e3, 2),
        "isolated_ms": round(fast * 1e3, 2),
        "ratio": round(ratio, 1),
        "holds": ratio >= 20,
    }


def _load(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The first answer from a package beside what must be compiled without one."""
    found: dict[str, Any] = {}
    for name in options.models or zoo.names():
        package = folder / name
        started = time.perf_counter()
        try:
            hexport.build(f"zoo:{name}", output=package, targets=[TARGET], scheme="fp16", share_weights=False)
            shapes = dict(zoo.entry(name).input_shapes)
            built = time.perf_counter() - started
            (folder / f"{name}-alone").mkdir()
            started = time.perf_counter()
            made = hexport.compile([f"zoo:{name}"], [TARGET], folder / f"{name}-alone", input_shapes=shapes)
            compiled = time.perf_counter() - started
            with load(package, "simulator", isolate=True, say=lambda _: None) as session:
                measured = session.bench(runs=1)
        except hexport.HexportError as error:
            found[name] = {"failure": f"{error.code} {error.what}"}
            continue
        ready = (measured.load_ms + measured.first_ms) / 1e3
        found[name] = {
            "compile_s": round(compiled, 2),
            "build_s": round(built, 2),
            "load_and_first_run_s": round(ready, 2),
            "ratio": round(compiled / ready, 1),
            "full": made.full,
        }
        print(f"  {name}: {found[name]}", flush=True)
    return found


def _kills(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    package, rng, before = cpu_package(folder), random.Random(0), _open_files()
    right = lost = wrong = 0
    killed: set[int] = set()
    started = time.perf_counter()
    with load(package, "cpu", isolate=True) as session, ThreadPoolExecutor(4) as threads:

        def ask(seed: int) -> bool:
            x = np.random.default_rng(seed).normal(size=(200_000,)).astype(np.float32)
            return bool(np.array_equal(session.run({"x": x})["y"], np.maximum(x, 0)))

        futures = [threads.submit(ask, seed) for seed in range(options.requests)]
        for number in range(options.kills):
            due = options.requests * (number + 1) // (options.kills + 1)
            while sum(future.done() for future in futures) < due:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.02))
            pid = session.worker_pid()
            if pid and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        for future in futures:
            try:
                answer = future.result(600)
            except RunError:
                lost += 1
                continue
            right, wrong = right + answer, wrong + (not answer)
        rebuilt = session.describe().rebuilt
    return {
        "requests": options.requests,
        "kills": len(killed),
        "right": right,
        "typed_errors": lost,
        "wrong": wrong,
        "rebuilt": rebuilt,
        "seconds": round(time.perf_counter() - started, 1),
        **_left(before),
        "holds": wrong == 0 and right + lost == options.requests and _left(before)["shared_files"] == 0,
    }


def _leak(folder: Path, _: argparse.Namespace) -> dict[str, Any]:
    """Twenty loads in a row, five times over; the first round pays for what stays loaded."""
    package = built(convolution(folder / "conv.onnx"), folder)
    x = {"x": np.ones(SHAPE, np.float32)}
    before, memory = _open_files(), []
    for _round in range(5):
        for number in range(20):
            backend = "simulator" if number % 2 else "cpu"
            with load(package, backend, isolate=number % 10 == 9, say=lambda _: None) as session:
                session.run(x)
        gc.collect()
        memory.append(round(_resident_mb(), 1))
    growth, left = memory[-1] - memory[1], _left(before)
    holds = growth < MOST_GROWTH_MB and not any(left.values())
    return {"resident_mb_by_round": memory, "growth_mb": round(growth, 1), **left, "holds": holds}


def _in_turns(one: Callable[[], object], other: Callable[[], object], runs: int) -> tuple[float, float]:
    """The medians; each goes first as often as the other."""
    times: tuple[list[float], list[float]] = ([], [])
    pairs = list(zip((one, other), times, strict=True))
    for _ in range(runs):
        for call, kept in pairs:
            started = time.perf_counter()
            call()
            kept.append(time.perf_counter() - started)
        pairs.reverse()
    return statistics.median(times[0]), statistics.median(times[1])


def _through_pipe(pipe: subprocess.Popen[bytes], x: np.ndarray) -> np.ndarray:
    assert pipe.stdin is not None
    assert pipe.stdout is not None
    request = {"name": "x", "data": base64.b64encode(x.tobytes()).decode(), "dtype": x.dtype.str}
    pipe.stdin.write(json.dumps({**request, "shape": x.shape}).encode() + b"\n")
    pipe.stdin.flush()
    reply = json.loads(pipe.stdout.readline())
    data = base64.b64decode(reply["data"])
    return np.frombuffer(data, reply["dtype"]).reshape(reply["shape"])


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
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
