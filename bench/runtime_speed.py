"""Overhead, transport and loading for ``runtime.py``: both sides of each comparison in one run, in turns."""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime

import hexport
from hexport import facts
from hexport.backend.sessions import add_provider
from hexport.runtime.house import House
from hexport.runtime.loading import load
from hexport.runtime.parts import Part
from runtime_models import SHAPE, TARGET, built, cpu_package, ones, product, zoo_package

ALLOWED_SHARE, ALLOWED_US = 0.03, 50.0
MEGABYTES = 10
LEAST_RATIO = 20.0
_BLOCKS = 5
_TURNS, _LONG_SECONDS = 3, 60.0


@dataclass(frozen=True)
class Turns:
    """Seconds of two calls that were made in turns."""

    one: float
    other: float
    """Medians."""
    difference: float
    """Of neighbours, the median: what slows the machine down for a while slows down both."""
    spread: float
    """How far the difference of the blocks that the run is cut into goes apart."""


def in_turns(one: Callable[[], object], other: Callable[[], object], runs: int) -> Turns:
    """Each goes first as often as the other."""
    times: tuple[list[float], list[float]] = ([], [])
    pairs = list(zip((one, other), times, strict=True))
    for _ in range(runs):
        for call, kept in pairs:
            started = time.perf_counter()
            call()
            kept.append(time.perf_counter() - started)
        pairs.reverse()
    apart = [b - a for a, b in zip(*times, strict=True)]
    size = max(1, len(apart) // _BLOCKS)
    blocks = [statistics.median(apart[i : i + size]) for i in range(0, size * _BLOCKS, size) if apart[i:]]
    medians = (statistics.median(kept) for kept in times)
    return Turns(*medians, statistics.median(apart), max(blocks) - min(blocks))


def overhead(folder: Path, runs: int) -> dict[str, Any]:
    """session.run beside a bare session on the same context model, which is so small that it shows."""
    package = built(product(folder / "product.onnx"), folder)
    context = next(package.glob(f"{TARGET}/*_ctx.onnx"))
    x = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    with load(package, "simulator", say=print) as session:
        bare = _bare(context)
        np.testing.assert_array_equal(session.run(x)["y"], bare.run(None, x)[0])
        turns = in_turns(lambda: bare.run(None, x), lambda: session.run(x), runs)
    allowed = max(ALLOWED_SHARE * turns.one * 1e6, ALLOWED_US)
    return {
        "runs": runs,
        "bare_us": round(turns.one * 1e6, 1),
        "session_us": round(turns.other * 1e6, 1),
        "overhead_us": round(turns.difference * 1e6, 1),
        "spread_us": round(turns.spread * 1e6, 1),
        "allowed_us": round(allowed, 1),
        "holds": turns.difference * 1e6 <= allowed,
    }


def _bare(context: Path) -> Any:
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = 3
    soc = str(facts.find_target(TARGET).soc_model)
    add_provider(onnxruntime, chosen, {"backend_type": "htp", "soc_model": soc})
    return onnxruntime.InferenceSession(str(context), chosen, enable_fallback=0)


def transport(folder: Path, runs: int) -> dict[str, Any]:
    """10 MB to a worker and back, through the region beside JSON and base64 in a pipe."""
    package = cpu_package(folder)
    x = np.random.default_rng(0).normal(size=(MEGABYTES * 10**6 // 4,)).astype(np.float32)
    command = [sys.executable, str(Path(__file__).with_name("runtime_pipe.py"))]
    model = str(package / "models/cpu.onnx")
    with (
        load(package, "cpu", isolate=True) as session,
        subprocess.Popen([*command, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pipe,
    ):
        np.testing.assert_array_equal(session.run({"x": x})["y"], _through_pipe(pipe, x))
        count = max(5, runs // 100)
        turns = in_turns(lambda: _through_pipe(pipe, x), lambda: session.run({"x": x}), count)
        assert pipe.stdin is not None
        pipe.stdin.close()
    ratio = turns.one / turns.other
    return {
        "megabytes": MEGABYTES,
        "runs": count,
        "pipe_ms": round(turns.one * 1e3, 2),
        "isolated_ms": round(turns.other * 1e3, 2),
        "ratio": round(ratio, 1),
        "holds": ratio >= LEAST_RATIO,
    }


def _through_pipe(pipe: subprocess.Popen[bytes], x: np.ndarray) -> np.ndarray:
    assert pipe.stdin is not None
    assert pipe.stdout is not None
    request = {"name": "x", "data": base64.b64encode(x.tobytes()).decode(), "dtype": x.dtype.str}
    pipe.stdin.write(json.dumps({**request, "shape": x.shape}).encode() + b"\n")
    pipe.stdin.flush()
    reply = json.loads(pipe.stdout.readline())
    data = base64.b64decode(reply["data"])
    return np.frombuffer(data, reply["dtype"]).reshape(reply["shape"])


def loading(folder: Path, models: list[str]) -> dict[str, Any]:
    """Loading the package beside compiling the prepared model, which is what must be done without one."""
    found: dict[str, Any] = {}
    for name in models:
        try:
            row = _loaded(folder, name)
        except hexport.HexportError as error:
            row = {"failure": f"{error.code} {error.what}"}
        found[name] = row
        print(f"  {name}: {row}", flush=True)
    return found


def _loaded(folder: Path, name: str) -> dict[str, Any]:
    """Both in a worker that is started for it, in turns; fewer of them where one takes long."""
    package, model = zoo_package(folder, name), folder / f"{name}.onnx"
    hexport.prepare(f"zoo:{name}", output=model, target=TARGET)  # what build compiles for fp16
    ready: list[float] = []
    compiled: list[float] = []
    started = time.perf_counter()
    while len(ready) < _TURNS and (not ready or time.perf_counter() - started < _LONG_SECONDS):
        ready.append(_ready(package))
        compiled.append(_compile(model, folder / f"{name}-{len(ready)}"))
    ratio = statistics.median(compiled) / statistics.median(ready)
    return {
        "turns": len(ready),
        "load_s": round(statistics.median(ready), 2),
        "compile_s": round(statistics.median(compiled), 2),
        "ratio": round(ratio, 1),
    }


def _ready(package: Path) -> float:
    """Until the session is there: the worker of the first run says when it has opened it."""
    opened = 0.0
    real = House.open

    def noted(house: House, part: str, parts: Iterable[Part]) -> None:
        nonlocal opened
        real(house, part, parts)
        opened = time.perf_counter()

    with (
        load(package, "simulator", isolate=True, say=lambda _: None) as session,
        patch.object(House, "open", noted),
    ):
        started = time.perf_counter()
        session.run(ones(session))
        return session.load_seconds + opened - started


def _compile(model: Path, folder: Path) -> float:
    folder.mkdir()
    started = time.perf_counter()
    hexport.compile([model], [TARGET], folder)
    return time.perf_counter() - started
