"""``hexport run``: what it measures and shows, what it stores, and that stdout is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as small
from cpu_packages import cpu_package
from hexport.packaging import manifest as m
from hexport.runtime.array_files import read_arrays
from runtime_packages import rows
from verified_packages import expected

X = np.random.default_rng(6).normal(size=(3, 1, 8, 8)).astype(np.float32)
FIGURES = ("load_ms", "first_ms", "median_ms", "p90_ms", "p99_ms", "per_second", "memory_mb")


def hexport(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [sys.executable, "-m", "hexport", *words], capture_output=True, text=True, check=False
    )


def places_of_numbers() -> onnx.ModelProto:
    """NonZero: how large its result is depends on the values."""
    nodes = [helper.make_node("NonZero", ["x"], ["where"], name="where")]
    inputs = [small.value("x", [4])]
    return small.model(nodes, inputs, [small.value("where", [1, "found"], TensorProto.INT64)])


CONTRACT = m.Contract((m.Tensor("x", "float32", (4,)),), (m.Tensor("where", "int64", (1, "found")),))


@pytest.mark.parametrize("packed", [False, True])
def test_outputs_that_differ_in_shape_are_stored_by_number(packed: bool, tmp_path: Path) -> None:
    """A model, and a package of it; samples that happen to agree are stored as one array."""
    if packed:
        thing = cpu_package(places_of_numbers(), CONTRACT, tmp_path / "package")
    else:
        thing = small.save(places_of_numbers(), tmp_path / "m.onnx")
    samples = np.array([[1, 0, 0, 0], [0, 2, 3, 0], [4, 4, 4, 4], [0, 0, 0, 0]], np.float32)
    for chosen, names in (([0, 1, 2, 3], [f"where@{i}" for i in range(4)]), ([1, 1], ["where"])):
        np.savez(tmp_path / "in.npz", x=samples[chosen])
        out = tmp_path / "out.npz"
        done = hexport("run", thing, "--inputs", tmp_path / "in.npz", "-o", out, "--samples", "--json")
        assert done.returncode == 0, done.stderr
        assert [one["name"] for one in json.loads(done.stdout)["outputs"]] == names
        got = read_arrays(out)
        assert list(got) == names
        wanted = [np.array(np.nonzero(samples[index])) for index in chosen]
        found = [got[name] for name in names] if len(names) > 1 else list(got["where"])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def bench(*arguments: object) -> dict[str, Any]:
    done = hexport("run", rows(), "--bench", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("where", [("--in-process",), ()], ids=["in process", "worker"])
@pytest.mark.parametrize("backend", ["cpu", "simulator"])
def test_bench_as_json_and_nothing_else_on_stdout(backend: str, where: tuple[str, ...]) -> None:
    """Also in process, where native code prints to stdout by itself."""
    document = bench("--backend", backend, "--runs", 20, "--threads", 3, *where)
    figures = document["bench"]
    assert (figures["backend"], figures["runs"], figures["threads"]) == (backend, 20, 3)
    assert all(figures[name] > 0 for name in FIGURES)
    assert figures["median_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
    assert bool(figures["note"]) == (backend == "simulator")
    assert document["outputs"] == []
    served = document["description"]["runs"]
    # The first, three to warm up, those that are timed, those of the threads.
    assert sum(served.values()) == 1 + 3 + 20 + 20
    assert document["description"]["isolated"] == (not where)


def test_bench_as_a_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X[0])
    out = tmp_path / "out.npz"
    done = hexport(
        *("run", rows(), "--inputs", tmp_path / "in.npz", "-o", out),
        *("--backend", "simulator", "--bench", "--runs", 5, "--threads", 2),
    )
    assert done.returncode == 0, done.stderr
    for title in ("load", "first", "median", "p90", "p99", "2 threads", "memory", "runs on", "CPU nodes"):
        assert title in done.stdout
    assert "say nothing about an NPU" in done.stdout
    np.testing.assert_allclose(read_arrays(out)["y"], expected(X[0]), atol=0.05)


def test_options_for_the_npu(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    profile, out = tmp_path / "profile.csv", tmp_path / "out.npz"
    done = hexport(
        *("run", rows(), "--inputs", tmp_path / "in.npz", "-o", out, "--samples", "--backend", "simulator"),
        *("--performance", "burst", "--priority", "high", "--rpc-latency", 100),
        *("--profiling", "basic", "--profiling-file", profile),
    )
    assert done.returncode == 0, done.stderr
    assert "EXECUTE" in profile.read_text("utf-8")
    for x, y in zip(X, read_arrays(out)["y"], strict=True):
        np.testing.assert_allclose(y, expected(x), atol=0.05)
