"""Workers that die: a right answer or a typed error, and nothing left behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexport.records import to_plain
from hexport.runtime import isolated
from hexport.runtime.engine import InProcess
from hexport.runtime.failures import EngineLost, SessionClosed
from hexport.runtime.house import House
from hexport.runtime.loading import load
from hexport.runtime.messages import Answer, Run
from hexport.runtime.parts import Part
from hexport.runtime.serving import Server
from hexport.runtime.shared_region import Region, lay_out
from hexport.toolchain import Limits, WorkerTimeout
from runtime_packages import answer, attention, decibels, question, rows
from shared_files import shared_files
from verified_packages import expected

FP32_DB = 120.0
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")


def workers() -> set[int]:
    """Workers of this process that are still there."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields, words = path.read_text().rsplit(")", 1)[1].split(), path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"hexport.runtime.serving" in words:
            found.add(int(path.parent.name))
    return found


@posix
def test_killed_workers_cost_no_answer() -> None:
    """100 requests by three threads, and five kills: each answer is right, or a typed error."""
    asked = [question(4 + number % 20, 1 + number % 3, seed=number) for number in range(100)]
    lost = 0
    with load(attention(), "cpu", isolate=True) as session, ThreadPoolExecutor(3) as threads:
        session.run(asked[0])
        futures = [threads.submit(session.run, inputs) for inputs in asked]
        rng, killed = random.Random(0), set()
        while len(killed) < 5:
            for pid in set(session.worker_pids()) - killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 0.05))
            if all(future.done() for future in futures):
                futures.append(threads.submit(session.run, asked[0]))
        for inputs, future in zip([*asked, *[asked[0]] * len(futures)], futures, strict=False):
            try:
                assert decibels(answer(inputs), future.result(60)["y"]) > FP32_DB
            except EngineLost:
                lost += 1
        assert session.describe().rebuilt >= 1
    assert lost <= len(killed)
    assert workers() == set()
    assert shared_files() == []


@posix
def test_a_worker_that_dies_while_nothing_is_asked_is_replaced() -> None:
    x = np.ones((1, 8, 8), np.float32)
    with load(rows(), "cpu", isolate=True) as session:
        session.run({"x": x})
        (first,) = session.worker_pids()
        assert shared_files() == []  # it has no name any more, though it is in use
        os.kill(first, signal.SIGKILL)
        np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-5)
        assert session.worker_pids() != (first,)
        assert session.describe().rebuilt == 1


def test_a_worker_that_always_dies_is_an_error_and_not_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part("part", "/nowhere.onnx")
    engine_of_its_own = isolated.Isolated()
    started = []

    class Doomed(House):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

        def open(self, *arguments: Any) -> None:
            self._worker._child.process.kill()
            super().open(*arguments)

    monkeypatch.setattr(isolated, "House", Doomed)
    engine_of_its_own.add([part])
    with pytest.raises(EngineLost) as caught:
        engine_of_its_own.run("part", {"x": np.ones(3)}, {})
    assert "SIGKILL" in caught.value.why
    assert len(started) == 2
    engine_of_its_own.close()
    assert workers() == set()
    with pytest.raises(SessionClosed):
        engine_of_its_own.run("part", {}, {})


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory has no folder here")
def test_a_region_that_still_has_its_name_would_be_seen() -> None:
    """What the tests here count: nobody but the session's own process makes them."""
    region = Region.create(10)
    try:
        assert shared_files() == [region.path]
    finally:
        region.forget_name()
        region.close()


def test_tensors_that_outgrow_the_region() -> None:
    """In and out: the region begins with 1 MiB."""
    with load(rows(), "cpu", isolate=True) as session:
        for length in (10, 200_000, 3, 400_000):
            x = np.random.default_rng(length).normal(size=(1, length, 8)).astype(np.float32)
            np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-4, atol=1e-5)
        assert session.describe().rebuilt == 0
        assert shared_files() == []


def test_outputs_that_are_larger_than_the_inputs(tmp_path: Path) -> None:
    model = expanding(tmp_path / "m.onnx")
    alone = isolated.Isolated()
    alone.add([Part("part", str(model))])
    got = alone.run("part", {"n": np.array([3_000_000])}, {})
    assert got["y"].shape == (3_000_000,)
    assert (got["y"] == 1).all()
    alone.close()


def expanding(path: Path) -> Path:
    import onnx
    from onnx import TensorProto, helper

    import small_models as small

    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("ConstantOfShape", ["n"], ["y"], name="many", value=one)
    inputs, outputs = [small.value("n", [1], TensorProto.INT64)], [small.value("y", ["n"])]
    onnx.save(small.model([node], inputs, outputs), path)
    return path


def test_a_session_nobody_closes_ends_its_worker() -> None:
    session = load(rows(), "cpu", isolate=True)
    session.run({"x": np.ones((1, 8, 8), np.float32)})
    assert len(workers()) == 1
    del session
    gc.collect()
    assert workers() == set()


def test_a_program_that_ends_without_closing_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import hexport.runtime.loading as l, numpy as np\n"
        f"for isolate in (False, True):\n    s = l.load({str(rows())!r}, 'simulator', isolate=isolate)\n"
        "    s.run({'x': np.ones((1, 8, 8), np.float32)})\n"
        "print('answered', *s.worker_pids())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout.split("answered ")[1])
    assert not Path(f"/proc/{pid}").exists()
    assert shared_files() == []


def test_time_that_runs_out_is_said_and_the_next_request_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((1, 8, 8), np.float32)
    with load(rows(), "cpu", isolate=True, limits=Limits(seconds=20)) as session:
        session.run({"x": x})
        (pid,) = session.worker_pids()
        monkeypatch.setattr(session._engine._houses[0]._worker, "_limits", Limits(seconds=0.2))  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerTimeout):
            session.run({"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-5)


class Counting(InProcess):
    """Counts the runs whose outputs were written to their places by the model itself."""

    placed = 0

    def run(self, *given: Any) -> dict[str, Any]:
        outputs = super().run(*given)
        self.placed += len(given) > 4
        return outputs


def served(model: Path, name: str) -> tuple[Callable[[np.ndarray], np.ndarray], Counting]:
    """What a worker does with a model of one input, in this process, in a region of 8 MiB."""
    server, engine, region = Server(), Counting(), Region.create(2**23)
    server._engine = engine
    server.attach({"path": str(region.path), "size": region.size})
    region.forget_name()
    server.add({"parts": [to_plain(Part("part", str(model)))]})

    def ask(array: np.ndarray) -> np.ndarray:
        spots, _ = lay_out({name: array})
        region.put(spots, {name: array})
        (spot,) = Answer.read(server.run(Run("part", spots, {}).written())).outputs
        return region.take(spot)

    return ask, engine


def test_large_outputs_are_written_where_they_shall_lie(tmp_path: Path) -> None:
    """From the second time on, when it is known how large they are."""
    ask, engine = served(expanding(tmp_path / "m.onnx"), "n")
    for size in (100_000, 100_000, 10, 10):
        got = ask(np.array([size]))
        assert got.shape == (size,)
        assert (got == 1).all()
    # One shape goes in, and several come out: that is noticed, and not tried again.
    assert engine.placed == 1
    for size in (200_000, 100_000):
        assert ask(np.array([size])).shape == (size,)
    assert engine.placed == 1


def test_outputs_lie_beside_the_inputs(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    import small_models as small

    nodes = [helper.make_node("Neg", ["x"], ["y"], name="negative")]
    model = small.model(nodes, [small.value("x", ["n"])], [small.value("y", ["n"])])
    onnx.save(model, tmp_path / "m.onnx")
    ask, engine = served(tmp_path / "m.onnx", "x")
    for size in (100_000, 200_000, 100_000, 50, 200_000, 50):
        x = np.random.default_rng(size).normal(size=size).astype(np.float32)
        np.testing.assert_array_equal(ask(x), -x)
    assert engine.placed == 2
    x = np.zeros(1_200_000, np.float32)  # more than half of the region
    for _ in range(2):
        assert ask(x * 2).shape == x.shape
    assert engine.placed == 2


def test_regions_hold_what_they_are_given(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(7, dtype=np.int8),
        "": np.float32([[1.5]]),
        "scalar": np.array(True),
        "none": np.zeros((0, 3), np.float16),
    }
    spots, needed = lay_out(arrays)
    region = Region.create(needed)
    other = Region.attach(region.path, region.size)
    region.forget_name()
    region.put(spots, arrays)
    for spot in spots:
        got = other.take(spot)
        assert got.dtype == arrays[spot.name].dtype
        np.testing.assert_array_equal(got, arrays[spot.name])
    region.close()
    other.close()
    assert not region.path.exists()
