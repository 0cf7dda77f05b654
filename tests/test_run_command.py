"""``hexport run`` from the command line, with the core install only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hexport.packaging import pack
from hexport.runtime.array_files import join_samples, read_arrays, write_arrays
from hexport.runtime.failures import BadInput
from runtime_packages import answer, attention, decibels, original, question, rows
from sized_models import WIDTH
from verified_packages import expected

CORE_ONLY = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {"onnx", "onnx_ir", "onnxscript", "onnxslim", "PIL", "torch"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv[0] = "hexport"
from hexport.cli.main import main
main()
"""


def hexport(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, where nothing but the core is installed."""
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [sys.executable, "-c", CORE_ONLY, *words], capture_output=True, text=True, check=False
    )


def saved(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_package_on_the_cpu(tmp_path: Path) -> None:
    inputs = question(7, 2)
    file, out = saved(tmp_path / "in.npz", **inputs), tmp_path / "out.npz"
    attention()
    done = hexport("run", attention(), "--inputs", file, "--output", out)
    assert done.returncode == 0, done.stderr
    assert "no NPU on this machine" in done.stdout
    assert decibels(answer(inputs), read_arrays(out)["y"]) > 100


def test_samples_of_a_package_on_the_simulator(tmp_path: Path) -> None:
    """One row a sample, on both sides; and the JSON says what ran where. Buckets are compiled, core only."""
    asked = [question(5, seed=seed) for seed in range(3)]
    file = saved(tmp_path / "in.npz", **{n: np.stack([one[n] for one in asked]) for n in ("ids", "mask")})
    out = tmp_path / "out.npz"
    arguments = ("--samples", "--backend", "simulator", "--no-cpu", "--json", "--bench", "--runs", 3)
    done = hexport("run", attention(), "--inputs", file, "-o", out, *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["samples"] == 3
    assert document["outputs"] == [{"name": "y", "dtype": "float32", "shape": [3, 1, 5, WIDTH]}]
    assert document["description"]["runs"]["seq-8"] >= 3
    assert document["bench"]["median_ms"] > 0
    for inputs, got in zip(asked, read_arrays(out)["y"], strict=True):
        assert decibels(answer(inputs), got) > 45


@pytest.mark.parametrize("backend", [("cpu",), ("simulator", "--target", "SM8650")])
def test_a_plain_model(backend: tuple[str, ...], tmp_path: Path) -> None:
    inputs = question(6)
    attention()
    file, out = saved(tmp_path / "in.npz", **inputs), tmp_path / "out.npz"
    done = hexport("run", original(), "--inputs", file, "-o", out, "--backend", *backend)
    assert done.returncode == 0, done.stderr
    assert "ran on the" in done.stdout
    assert decibels(answer(inputs), read_arrays(out)["y"]) > 45


def test_a_compiled_model_runs_where_it_can(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 8, 8)).astype(np.float32)
    file, out = saved(tmp_path / "in.npz", x=x), tmp_path / "out.npz"
    model = next(rows().glob("SM8650/seq8*_ctx.onnx"))
    done = hexport("run", model, "--inputs", file, "-o", out, "--backend", "simulator", "--target", "SM8650")
    assert done.returncode == 0, done.stderr
    assert decibels(expected(x), read_arrays(out)["y"]) > 45
    done = hexport("run", model, "--inputs", file)
    assert done.returncode == 2
    assert "context binary" in done.stderr


def test_a_packed_package_is_not_taken_for_a_model(tmp_path: Path) -> None:
    packed = pack(rows(), tmp_path / "rows.zip")
    file = saved(tmp_path / "in.npz", x=np.ones((1, 8, 8), np.float32))
    done = hexport("run", packed, "--inputs", file)
    assert done.returncode == 2
    assert "--unpack" in done.stderr


def test_a_scalar_input_is_one_axis_with_samples(tmp_path: Path) -> None:
    x = np.ones((2, 1, 8, 8), np.float32)
    file = saved(tmp_path / "in.npz", x=x, gain=np.full(2, 2, np.float32))
    out = tmp_path / "out.npz"
    done = hexport("run", rows(), "--inputs", file, "-o", out, "--samples", "--in-process")
    assert done.returncode == 0, done.stderr
    assert read_arrays(out)["y"].shape == (2, 1, 8, 4)


def test_outputs_of_different_shapes_are_numbered(tmp_path: Path) -> None:
    samples = [{"a": np.zeros(2), "b": np.float32(1)}, {"a": np.zeros(3), "b": np.float32(2)}]
    joined = join_samples(samples)
    assert {name: array.shape for name, array in joined.items()} == {"a@0": (2,), "a@1": (3,), "b": (2,)}
    with pytest.raises(BadInput, match="a@0"):
        join_samples([{"a": np.zeros(2), "a@0": np.zeros(1)}, {"a": np.zeros(3), "a@0": np.zeros(1)}])


def test_names_that_numpy_savez_does_not_take(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3), "a/b:c": np.float32([[1]]), "args": np.array(True)}
    write_arrays(tmp_path / "out.npz", arrays)
    got = read_arrays(tmp_path / "out.npz")
    assert list(got) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)


def test_wrong_calls_end_in_one_clear_error(tmp_path: Path) -> None:
    good = saved(tmp_path / "in.npz", x=np.ones((1, 8, 8), np.float32))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04nothing")
    uneven = saved(tmp_path / "uneven.npz", x=np.ones((2, 1, 8, 8), np.float32), gain=np.ones(3, np.float32))
    for arguments, code in (
        ((), "HX001"),
        (("--inputs", tmp_path / "none.npz"), "HX911"),
        (("--inputs", tmp_path / "bad.npz"), "HX911"),
        (("--inputs", uneven, "--samples"), "HX911"),
        (("--inputs", good, "-o", tmp_path / "no" / "out.npz"), "HX001"),
        (("--inputs", good, "--backend", "npu"), "HX914"),
        (("--inputs", good, "--backend", "cpu", "--target", "SM8650"), "HX001"),
        (("--inputs", good, "--backend", "simulator", "--performance", "fast"), "HX103"),
    ):
        done = hexport("run", rows(), *arguments, "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["code"] == code, done.stdout
        assert "Traceback" not in done.stderr


def test_wrong_calls_for_models(tmp_path: Path) -> None:
    attention()
    file = saved(tmp_path / "in.npz", **question(6))
    for arguments in (
        ("--bench",),
        ("--backend", "simulator"),
        ("--backend", "npu"),
        ("--target", "SM8650"),
        ("--performance", "burst"),
    ):
        done = hexport("run", original(), "--inputs", file, *arguments, "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["code"] == "HX001", done.stdout
