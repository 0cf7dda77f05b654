"""Running models in a worker: the CPU's numbers, and the NPU's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import small_models as small
from hexport import facts
from hexport.backend import failures
from hexport.backend.running import run_on, run_on_cpu, run_on_htp
from hexport.backend.where import choose_where

TARGET = facts.find_target("SM8650")


def samples(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(4, 16)).astype(np.float32)} for _ in range(count)]


def test_cpu_is_exact_and_in_order(tmp_path: Path) -> None:
    proto = small.cut_by_erf()
    weight = np.frombuffer(proto.graph.initializer[0].raw_data, np.float32).reshape(16, 16)
    erf = np.vectorize(__import__("math").erf)
    given = samples(3)
    results = run_on_cpu(small.save(proto, tmp_path / "m.onnx"), given)
    assert results.npu_parts == 0
    for sample, output in zip(given, results.outputs, strict=True):
        expected = np.maximum(erf(sample["x"] @ weight) @ weight, 0)
        np.testing.assert_allclose(output["y"], expected, rtol=1e-4, atol=1e-5)


def test_htp_is_fp16(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    given = [{"x": np.random.default_rng(2).normal(size=(1, 3, 16, 16)).astype(np.float32)}]
    cpu, htp = run_on_cpu(path, given).outputs[0]["y"], run_on_htp(path, given, TARGET)
    assert htp.npu_parts == 1
    error = np.abs(htp.outputs[0]["y"] - cpu).max() / np.abs(cpu).max()
    assert 1e-6 < error < 1e-2, "fp16 is close to fp32, and not the same"


def test_names_may_hold_anything(tmp_path: Path) -> None:
    names = ["file", "a/b", "../c", "serving:0", "名前"]
    nodes = [helper.make_node("Neg", [name], [f"out {name}"]) for name in names]
    proto = small.model(
        nodes, [small.value(n, [2]) for n in names], [small.value(f"out {n}", [2]) for n in names]
    )
    given = {name: np.full(2, i + 1, np.float32) for i, name in enumerate(names)}
    (output,) = run_on_cpu(small.save(proto, tmp_path / "m.onnx"), [given]).outputs
    assert {name: list(array) for name, array in output.items()} == {
        f"out {name}": [-(i + 1)] * 2 for i, name in enumerate(names)
    }


def test_a_bad_sample_is_named(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    good, bad = np.zeros((1, 3, 16, 16), np.float32), np.zeros((1, 3, 16, 15), np.float32)
    with pytest.raises(failures.RunFailed, match="sample 1"):
        run_on_cpu(path, [{"x": good}, {"x": bad}])


def test_a_backend_that_does_not_start_gives_no_numbers(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    given = [{"x": np.zeros((1, 3, 16, 16), np.float32)}]
    with pytest.raises(failures.BackendNotInitialised):
        run_on(path, given, choose_where("gpu", None))
