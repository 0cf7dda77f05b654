"""The command as a whole: interrupted, piped, and with the core install only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import small_models as small
from test_worker import wait_until_gone

COMMAND = [sys.executable, "-m", "hexport"]
# What is not in the core install; each is replaced by a module that refuses to be imported.
EXTRAS = ["onnx", "onnx_ir", "onnxscript", "onnxslim", "PIL", "torch", "ml_dtypes"]


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    """A temp folder of the command's own, to see what it leaves there."""
    folder = tmp_path / "temp"
    folder.mkdir()
    return folder


def left(temp: Path) -> list[Path]:
    """All that is in it, but for hexport's own place, which must be empty then."""
    return [
        path for path in temp.rglob("*") if not (path.parent == temp and path.name.startswith("hexport-"))
    ]


def test_check_needs_the_core_install_only(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in EXTRAS:
        (blocked / f"{name}.py").write_text(f"raise ImportError('{name} is not in the core install')\n")
    environment = {**os.environ, "PYTHONPATH": str(blocked)}
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    done = subprocess.run(
        [*COMMAND, "check", str(path), "--target", "SM8650", "--json"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["nodes"] == {"npu": 3, "cpu": 1}
    probe = subprocess.run(
        [sys.executable, "-c", "import onnx"], env=environment, capture_output=True, check=False
    )
    assert probe.returncode == 1, "the instrument itself: onnx must really be out of reach"


def test_a_missing_provider_is_an_error_not_a_fallback(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "onnxruntime_qnn.py").write_text("raise ImportError('not installed')\n")
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    done = subprocess.run(
        [*COMMAND, "check", str(path), "--target", "SM8650"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(blocked)}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "HX501" in done.stderr
    assert "onnxruntime-qnn cannot be imported" in done.stderr


def test_stray_modules_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise SystemExit('foreign code was run')\n")
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    hexport = Path(sys.executable).with_name("hexport")
    done = subprocess.run(
        [str(hexport), "check", str(path), "--target", "SM8650"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing(tmp_path: Path, temp: Path, number: signal.Signals, code: int) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    command = subprocess.Popen(
        [*COMMAND, "check", str(path), "--target", "SM8650"],
        env={**os.environ, "TMPDIR": str(temp)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 20
    while not list(temp.glob("hexport-*/*/native.log")):  # the worker has just been started
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
    os.killpg(command.pid, number)
    out, err = command.communicate(timeout=10)
    assert command.returncode == code
    assert "Traceback" not in out + err
    assert left(temp) == []
    assert all(wait_until_gone(int(pid)) for pid in children)


def test_success_leaves_nothing_either(tmp_path: Path, temp: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    environment = {**os.environ, "TMPDIR": str(temp), "HOME": str(tmp_path / "home")}
    subprocess.run(
        [*COMMAND, "check", str(path), "--target", "57"], check=True, env=environment, capture_output=True
    )
    assert left(temp) == [], "a temp folder, or the telemetry id of onnxruntime"
    assert not (tmp_path / "home").exists()


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m hexport targets --json | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_errors_are_json_too() -> None:
    done = subprocess.run(
        [*COMMAND, "check", "none.onnx", "--target", "57", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "HX401"
    assert done.stderr == ""


def test_version() -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hexport, version ")
