"""Packages in the interpreter of a toolchain: it is settled at load, and everything is about it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hexport
import small_models as small
import verified_packages
from cpu_packages import cpu_package
from hexport import facts
from hexport.environments.choosing import using
from hexport.environments.failures import UnknownToolchain
from hexport.errors import HexportError, UsageError
from hexport.packaging import manifest as m
from hexport.runtime import device
from hexport.runtime.array_files import read_arrays
from hexport.runtime.failures import BackendMissing, Incompatible, RunError
from hexport.runtime.session import Session
from hexport.toolchain import Interpreter, in_force, only_here
from hexport.toolchain.interpreter import VARIABLE
from made_packages import edit
from shared_files import shared_files
from toolchain_standins import name_interpreter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
X = np.random.default_rng(0).normal(size=50_000).astype(np.float32)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("HEXPORT_TOOLCHAIN", raising=False)
    return tmp_path / "data"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = Relu(x) of any length, for the CPU."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="relu")]
    model = small.model(nodes, [small.value("x", ["n"])], [small.value("y", ["n"])])
    x, y = (m.Tensor(name, "float32", ("n",)) for name in "xy")
    return cpu_package(model, m.Contract((x,), (y,)), tmp_path_factory.mktemp("relu") / "package")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buckets that share weights, which the simulator's own compiler must compile again."""
    folder = tmp_path_factory.mktemp("shared")
    made = verified_packages.build(folder / "package", folder / "work", (8, 16), share=True)
    sdk = facts.sdk_of(facts.installed_release() or "")
    edit(made, lambda document: document["toolchain"].update(qnn_sdk=sdk))
    return made


def spying(folder: Path, name: str) -> Path:
    """A python that notes what it is started with."""
    script = folder / f"{name}-python"
    script.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/{name}.seen"\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def seen(folder: Path, name: str) -> list[str]:
    """The modules that were run there."""
    file = folder / f"{name}.seen"
    return [line.split()[-1] for line in file.read_text().splitlines()] if file.exists() else []


def right(session: Session) -> bool:
    return bool(np.array_equal(session.run({"x": X})["y"], np.maximum(X, 0)))


def variables(session: Session) -> list[bytes]:
    (pid,) = session.worker_pids()
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def kill(session: Session) -> None:
    (pid,) = session.worker_pids()
    os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- which interpreter


def test_a_session_keeps_the_toolchain_it_was_loaded_with(package: Path, tmp_path: Path) -> None:
    """For workers that replace lost ones, too, whatever is in force by then, and although it is removed."""
    one = name_interpreter("one", str(spying(tmp_path, "one")), MARK="1")
    name_interpreter("two", str(spying(tmp_path, "two")))
    with hexport.load(package, "cpu", toolchain="one") as session:
        assert right(session)
        assert b"MARK=1" in variables(session)
        Path(tmp_path / "data" / "toolchains" / "one.json").unlink()
        with using("two"):
            kill(session)
            assert right(session)
            assert b"MARK=1" in variables(session)
        assert session.describe().rebuilt == 1
        described = session.describe().toolchain
    assert seen(tmp_path, "one") == ["hexport.runtime.serving"] * 2
    assert seen(tmp_path, "two") == []
    assert (described.name, described.python) == ("one", one.python)
    assert described.packages == {name: one.packages[name] for name in ("onnxruntime-qnn", "onnxruntime")}


def test_sessions_of_two_toolchains_and_of_none_at_once(package: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        name_interpreter(name, str(spying(tmp_path, name)), MARK=name)
    with (
        hexport.load(package, "cpu", toolchain="one") as one,
        hexport.load(package, "cpu", toolchain="two") as two,
        hexport.load(package, "cpu", isolate=True) as here,
        ThreadPoolExecutor(3) as threads,
    ):
        for _ in range(2):
            assert all(threads.map(right, [one, two, here] * 3))
            assert b"MARK=one" in variables(one)
            assert b"MARK=two" in variables(two)
            assert not any(entry.startswith(b"MARK=") for entry in variables(here))
            for session in (one, two, here):
                kill(session)
    assert [len(seen(tmp_path, name)) for name in ("one", "two")] == [2, 2]
    assert VARIABLE not in os.environ


def test_a_session_of_this_interpreter_stays_in_it(package: Path, tmp_path: Path) -> None:
    name_interpreter("one", str(spying(tmp_path, "one")), MARK="1")
    with hexport.load(package, "cpu", isolate=True) as session, using("one"):
        assert right(session)
        assert f"{VARIABLE}=".encode() in variables(session)
        with hexport.load(package, "cpu", toolchain="this") as other:
            assert right(other)
            assert other.worker_pids() == ()
            assert other.describe().toolchain.name == "this"
    assert seen(tmp_path, "one") == []


def test_what_is_in_force_counts_where_nothing_is_asked_for(package: Path, tmp_path: Path) -> None:
    """So ``hexport run --toolchain`` and ``load(toolchain=…)`` are one way."""
    name_interpreter("one", str(spying(tmp_path, "one")))
    with using("one"):
        session = hexport.load(package, "cpu")
        with pytest.raises(UsageError, match="isolate=False does not go with toolchain 'one'"):
            hexport.load(package, "cpu", isolate=False)
    with session:
        assert right(session)
        assert session.describe().isolated
    assert seen(tmp_path, "one") == ["hexport.runtime.serving"]


def test_what_does_not_go_together(package: Path) -> None:
    name_interpreter("one")
    name_interpreter("torch-only", packages={"executorch": "1.5.1", "onnxruntime-qnn": "2.5.0"})
    with pytest.raises(UsageError, match="isolate=False"):
        hexport.load(package, "cpu", toolchain="one", isolate=False)
    with pytest.raises(UnknownToolchain):
        hexport.load(package, "cpu", toolchain="nothing")
    with pytest.raises(BackendMissing, match="do not run in the toolchain 'torch-only'"):
        hexport.load(package, "cpu", toolchain="torch-only")


def test_the_application_loads_no_native_code(package: Path) -> None:
    name_interpreter("one")
    code = (
        "import sys, hexport, numpy as np\n"
        f"with hexport.load({str(package)!r}, 'cpu', toolchain='one') as session:\n"
        "    assert session.run({'x': -np.ones(9, np.float32)})['y'].sum() == 0\n"
        "print(*(name for name in sys.modules if name.startswith('onnx')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_run_takes_a_toolchain_for_packages_and_models(package: Path, tmp_path: Path) -> None:
    name_interpreter("one", str(spying(tmp_path, "one")))
    np.savez(tmp_path / "in.npz", x=X)
    for thing, module in ((package, "runtime.serving"), (package / "models/cpu.onnx", "backend.jobs")):
        out = tmp_path / "out.npz"
        ran = hexport.run(thing, inputs=tmp_path / "in.npz", output=out, backend="cpu", toolchain="one")
        np.testing.assert_array_equal(read_arrays(out)["y"], np.maximum(X, 0))
        assert seen(tmp_path, "one")[-1] == f"hexport.{module}"
        assert ran.description is None or ran.description.toolchain.name == "one"
    assert in_force() is None


# ---------------------------------------------------------------- everything is about that one


def test_the_backend_is_that_of_the_toolchain(shared: Path) -> None:
    """Its SDK is older than the package's; and an older release has other options."""
    older = {"onnxruntime": "1.26.0", "onnxruntime-qnn": "2.3.0"}
    name_interpreter("older", packages=older)
    name_interpreter("without", packages={"onnxruntime": "1.26.0"})
    with pytest.raises(Incompatible) as caught:
        hexport.load(shared, "simulator", toolchain="older")
    assert f"newer than {facts.sdk_of('2.3.0')}" in str(caught.value)
    with pytest.raises(BackendMissing, match="no simulator"):
        hexport.load(shared, "simulator", toolchain="without")
    hexport.load(shared, "simulator").close()


def test_the_simulator_compiles_with_the_toolchain(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    name_interpreter("one", str(spying(tmp_path, "one")))
    x = np.random.default_rng(1).normal(size=(1, 8, 8)).astype(np.float32)
    with hexport.load(shared, "simulator", toolchain="one", say=lambda _: None) as session:
        got = session.run({"x": x}, performance="burst")["y"]
        assert session.describe().runs == {"seq8": 1}
    np.testing.assert_allclose(got, verified_packages.expected(x), atol=0.05)
    assert "hexport.backend.jobs" in seen(tmp_path, "one")
    assert seen(tmp_path, "one")[-1] == "hexport.runtime.serving"


def test_devices_are_those_of_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[bool, str, str]] = []
    monkeypatch.setattr(device, "_arm_device", lambda *given: looked.append(given) or device.Device(npu=True))
    arm = Interpreter("arm", "python", "windows-arm64", {"onnxruntime-qnn": "2.5.0"})
    with only_here(arm):
        assert device.this_device().npu
    assert looked == [(True, facts.sdk_of("2.5.0"), "windows-arm64")]
    assert not device.this_device().npu


def test_an_npu_that_this_python_does_not_reach(package: Path, shared: Path) -> None:
    foreign = device.Device(out_of_reach=True, sdk="2.51.0")
    with pytest.raises(BackendMissing, match="out of reach") as caught:
        hexport.load(shared, "npu", device=foreign)
    assert "hexport toolchain add" in caught.value.next
    said: list[str] = []
    hexport.load(package, device=foreign, say=said.append).close()
    assert "out of reach" in said[0]


def test_one_thread_can_have_it_settled() -> None:
    one = Interpreter("one", "python", "linux-x86_64", {"onnxruntime-qnn": "2.3.0"})
    with only_here(one):
        assert in_force() == one
        assert facts.installed_release() == "2.3.0"
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(in_force).result() is None
        with only_here(None):
            assert in_force() is None
        assert in_force() == one
    assert in_force() is None


# ---------------------------------------------------------------- survival


def test_killed_workers_of_a_toolchain_cost_no_answer(package: Path, tmp_path: Path) -> None:
    """300 calls by 8 threads and 4 kills; ``bench/dual_process.py`` has the real figures."""
    name_interpreter("one", str(spying(tmp_path, "one")))

    def ask(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(size=1 + seed * 100).astype(np.float32)
        return bool(np.array_equal(session.run({"x": x})["y"], np.maximum(x, 0)))

    with (
        hexport.load(package, "cpu", toolchain="one", workers=2) as session,
        ThreadPoolExecutor(8) as threads,
    ):
        futures = [threads.submit(ask, seed) for seed in range(300)]
        killed = killed_at_random(session, futures, 4)
        outcomes = [outcome(future) for future in futures]
        pids = session.worker_pids()
    assert len(killed) == 4
    assert outcomes.count("right") + outcomes.count("lost") == 300
    assert outcomes.count("lost") <= len(killed)
    assert not any(Path(f"/proc/{pid}").exists() for pid in {*pids, *killed})
    assert not shared_files()
    assert len(seen(tmp_path, "one")) >= 4


def killed_at_random(session: Session, futures: list[Future[bool]], count: int) -> set[int]:
    rng, killed = random.Random(0), set[int]()
    while len(killed) < count and not all(future.done() for future in futures):
        time.sleep(rng.uniform(0, 0.05))
        alive = sorted(set(session.worker_pids()) - killed)
        if alive and sum(future.done() for future in futures) > len(futures) * len(killed) // (count + 1):
            killed.add(alive[0])
            os.kill(alive[0], signal.SIGKILL)
    return killed


def outcome(future: Future[bool]) -> Any:
    try:
        return "right" if future.result(300) else "wrong"
    except RunError:
        return "lost"
    except HexportError as error:
        return type(error).__name__
