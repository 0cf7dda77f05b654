"""``hexport quantize`` as a command: what it prints and where, its exit codes, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import pytest

import small_models as small
from hexport.cli.main import main
from quantised_graphs import cnn
from test_quantize import calibration, labelled

Done = subprocess.CompletedProcess[str]


def hexport(*arguments: object) -> Done:
    """In this process, which has the imports behind it already."""
    out, err = io.StringIO(), io.StringIO()
    words = ["hexport", "quantize", *map(str, arguments)]
    handler = signal.getsignal(signal.SIGTERM)
    argv = patch.object(sys, "argv", words)
    with redirect_stdout(out), redirect_stderr(err), argv, pytest.raises(SystemExit) as end:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert isinstance(end.value.code, int)
    return subprocess.CompletedProcess(words, end.value.code, out.getvalue(), err.getvalue())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.save(labelled(cnn(17)), tmp_path / "m.onnx")


def options(model: Path, **others: object) -> list[object]:
    """What every call needs, and more; None leaves one out."""
    found: dict[str, object] = {
        "o": model.with_name("out.onnx"),
        "target": "SM8650",
        "scheme": "8a8w",
        "effort": "fast",
        "calib": calibration(cnn(17), model.parent),
        **others,
    }
    words: list[object] = [model]
    for name, value in found.items():
        if value is not None:
            words += [f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}", value]
    return words


def test_from_a_model_as_it_was_exported_to_one_json_document(tmp_path: Path) -> None:
    """Prepared on the way; nothing but the document is on stdout."""
    path = small.save(cnn(17), tmp_path / "raw.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "hexport", "quantize", *map(str, options(path, effort="normal")), "--json"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "HEXPORT_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["met"] is True
    assert document["cpu_nodes"] == []
    assert document["sqnr_db"] > 25
    assert document["candidates"][-1]["sqnr_npu_db"] == document["sqnr_db"]
    assert document["precisions"]["8a8w"] == 3
    assert not [warning for warning in document["warnings"] if "random inputs" in warning]
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
    assert json.loads((tmp_path / "out.quant.json").read_text("utf-8"))["nodes"]


def test_the_report_for_people(model: Path) -> None:
    done = hexport(*options(model), "--keep-float", "gemm")
    assert done.returncode == 0, done.stderr
    for said in (
        "8a8w",
        "SQNR on NPU / CPU",
        "fp16 inside: 1 nodes",
        "gemm: asked for by 'gemm'",
        "MB →",
        "✓",
    ):
        assert said in done.stdout


def test_a_goal_that_is_met_and_one_that_is_not(model: Path) -> None:
    met = hexport(*options(model, min_sqnr=20))
    assert met.returncode == 0
    assert "at least 20 were asked for" in met.stdout
    model.with_name("out.onnx").unlink()
    short = hexport(*options(model, min_sqnr=200))
    assert short.returncode == 1
    assert "200 dB were asked for; the best model found is written" in short.stdout
    assert model.with_name("out.onnx").exists()


def test_a_failure_is_a_document_too(model: Path) -> None:
    done = hexport(*options(model, calib=None), "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "HX001"
    assert "calibration data" in error["what"]
    assert "--calib" in error["next"]


def bad_calibration(folder: Path) -> Path:
    """An array for another input."""
    path = folder / "other.npz"
    np.savez(path, z=np.zeros((2, 1, 3, 16, 16), np.float32))
    return path


BAD: dict[str, tuple[dict[str, object], str]] = {
    "no calibration": ({"calib": None}, "quantising needs calibration data"),
    "no such calibration": ({"calib": "nowhere.npz"}, "nowhere.npz"),
    "no such scheme": ({"scheme": "4a4w"}, "no scheme '4a4w'"),
    "no such chip": ({"target": "SM0000"}, "SM0000"),
    "no such effort": ({"effort": "huge"}, "huge"),
    "no such folder": ({"o": Path("no", "such", "out.onnx")}, "cannot be written"),
    "no such override": ({"override": "nowhere.json"}, "nowhere.json"),
    "no such node": ({"keep_float": "nosuch"}, "no node fits 'nosuch'"),
    "no pattern": ({"keep_float": "a("}, "neither a name nor a pattern"),
    "no such ranges": ({"ranges": "widest"}, "widest"),
    "no such technique": ({"without": "magic"}, "magic"),
    "ranges of fp16": ({"scheme": "fp16", "ranges": "mse"}, "--ranges means nothing for fp16"),
    "techniques of fp16": ({"scheme": "fp16", "without": "bias-correction"}, "--without means nothing"),
    "no samples": ({"samples": 0}, "samples"),
    "no number": ({"min_sqnr": "much"}, "much"),
    "a drop of nothing": ({"max_drop": 0.1}, "--max-drop belongs to --metric"),
    "a metric without a limit": ({"metric": "os:getcwd"}, "--metric needs --max-drop"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_told_without_a_traceback(model: Path, what: str) -> None:
    others, says = BAD[what]
    done = hexport(*options(model, **others))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not model.with_name("out.onnx").exists()


def test_calibration_for_another_model(model: Path) -> None:
    done = hexport(*options(model, calib=bad_calibration(model.parent)))
    assert done.returncode == 2
    assert "HX701" in done.stderr


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    done = hexport(*options(path))
    assert done.returncode == 2
    assert "m.onnx" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_metric_of_the_users_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides in place of decibels."""
    model.with_name("mine.py").write_text(
        "def mean(outputs, inputs):\n    return float(sum(o['y'].mean() for o in outputs)) / len(inputs)\n"
    )
    monkeypatch.syspath_prepend(str(model.parent))
    monkeypatch.chdir(model.parent)
    done = hexport(*options(model, metric="mine:mean", max_drop=0.5), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert abs(document["metric_drop"]) <= document["max_drop"] == 0.5
    short = hexport(*options(model, metric="mine:mean", max_drop=-100))
    assert short.returncode == 1
