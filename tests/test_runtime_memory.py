"""What closing gives back: memory, processes, open files. Measured in a fresh process each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import small_models as small
from cpu_packages import cpu_package
from hexport.packaging import manifest as m
from runtime_packages import rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SIDE = 4096
WEIGHTS_MB = SIDE * SIDE * 4 / 2**20
MEASURE = """
import gc, json, os, sys
from pathlib import Path
import numpy as np
import hexport

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

def files():
    return len(list(Path("/proc/self/fd").iterdir()))

def opened(backend="cpu", **options):
    return hexport.load(sys.argv[1], backend, say=lambda _: None, **options)

"""


def measured(code: str, package: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE + code, str(package)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One product with 64 MiB of weights, for the CPU."""
    weight = np.full((SIDE, SIDE), 0.5, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    inputs, outputs = [small.value("x", [1, SIDE])], [small.value("y", [1, SIDE])]
    model = small.model(nodes, inputs, outputs, [small.constant("w", weight)])
    x, y = (m.Tensor(name, "float32", (1, SIDE)) for name in "xy")
    return cpu_package(model, m.Contract((x,), (y,)), tmp_path_factory.mktemp("heavy") / "package")


def test_unloading_frees_memory(heavy: Path) -> None:
    """Of one session, of two at once whatever is closed first, and of one that nobody closed."""
    found = measured(
        f"x = {{'x': np.ones((1, {SIDE}), np.float32)}}\n"
        "def ready():\n    session = opened()\n    session.run(x)\n    return session\n"
        "ready().close()\n"  # pays for what stays loaded
        "memory = [resident()]\n"
        "one, two = ready(), ready()\n"
        "memory.append(resident())\n"
        "one.close()\n"
        "memory.append(resident())\n"
        "assert two.run(x)['y'][0, 0] == len(x['x'][0]) / 2\n"
        "two.close()\n"
        "memory.append(resident())\n"
        "three = ready()\n"
        "del three\n"
        "memory.append(resident())\n"
        "print(json.dumps({'memory': memory}))",
        heavy,
    )
    empty, both, one_left, none_left, never_closed = found["memory"]
    few = WEIGHTS_MB / 4
    assert both - empty > 2 * WEIGHTS_MB - few
    assert one_left - empty == pytest.approx((both - empty) / 2, abs=few)
    assert none_left - empty < few
    assert never_closed - empty < few


def test_an_isolated_session_keeps_its_memory_elsewhere(heavy: Path) -> None:
    found = measured(
        f"x = {{'x': np.ones((1, {SIDE}), np.float32)}}\n"
        "def ready():\n    session = opened(isolate=True)\n    session.run(x)\n    return session\n"
        "ready().close()\n"
        "memory = [resident()]\n"
        "session = ready()\n"
        "memory.append(resident())\n"
        "counts = [len(children())]\n"
        "session.close()\n"
        "counts.append(len(children()))\n"
        "print(json.dumps({'memory': memory, 'children': counts}))",
        heavy,
    )
    assert found["children"] == [1, 0]
    assert found["memory"][1] - found["memory"][0] < WEIGHTS_MB / 4


def test_twenty_loads_leave_nothing() -> None:
    """On the CPU and the simulator, some in workers; the first few pay for what stays loaded."""
    found = measured(
        "x = {'x': np.ones((1, 8, 8), np.float32)}\n"
        "def round():\n"
        "    for number in range(20):\n"
        "        backend = 'simulator' if number % 2 else 'cpu'\n"
        "        with opened(backend, isolate=number % 10 > 7) as session:\n"
        "            session.run(x)\n"
        "round()\n"
        "before = resident(), files()\n"
        "round()\n"
        "left = {'children': len(children()), 'files': files() - before[1]}\n"
        "print(json.dumps({**left, 'memory': resident() - before[0]}))",
        rows(),
    )
    assert found["children"] == 0
    assert found["files"] == 0
    assert found["memory"] < 10
