"""Every tensor is looked at, in as few runs as memory allows, whatever the runs are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport.quantization import observing
from hexport.quantization.observing import chunks, observe
from hexport.rewrite.applying import infer_shapes


def _model(count: int = 6, *, empty: bool = False) -> ir.Model:
    """A chain of Relus over 100 numbers; at its end a tensor without any."""
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    outputs = [small.value(f"t{count}", [100])]
    constants = []
    if empty:
        nodes.append(helper.make_node("Slice", [f"t{count}", "none", "none"], ["nothing"]))
        outputs.append(small.value("nothing", [0]))
        constants.append(small.constant("none", np.zeros(1, np.int64)))
    model = ir.from_proto(small.model(nodes, [small.value("t0", [100])], outputs, constants))
    infer_shapes(model)
    return model


def _samples() -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    return [{"t0": random.normal(size=100).astype(np.float32)} for _ in range(5)]


@pytest.mark.parametrize("empty", [False, True])
def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool) -> None:
    whole = observe(_model(empty=empty), _samples(), tmp_path)
    monkeypatch.setattr(observing, "_CHUNK", 100)
    heard: list[tuple[int, str]] = []
    told: list[tuple[int, int, int]] = []
    parts = observe(
        _model(empty=empty),
        _samples(),
        tmp_path,
        lambda *progress: told.append(progress),
        lambda number, name, _: heard.append((number, name)),
    )
    assert set(parts) == set(whole) == {f"t{i}" for i in range(7)} | ({"nothing"} if empty else set())
    for name, histogram in whole.items():
        assert (parts[name].low, parts[name].high) == (histogram.low, histogram.high)
        np.testing.assert_array_equal(parts[name].counts, histogram.counts)
    assert sorted(heard) == [(number, name) for number in range(5) for name in sorted(whole)], "each once"
    assert told == [(done, number, 4) for number in range(4) for done in range(1, 6)]


def test_chunks_are_few_and_even(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(40)
    assert len(chunks(model)) == 1
    monkeypatch.setattr(observing, "_CHUNK", 2000)
    assert [len(names) for names in chunks(model)] == [14, 13, 13]
    monkeypatch.setattr(observing, "_CHUNK", 100)
    assert [len(names) for names in chunks(model)] == [10, 10, 10, 10]


def test_a_model_of_integers_alone_has_nothing_to_look_at(tmp_path: Path) -> None:
    x, y = (small.value(name, [4], TensorProto.INT64) for name in "xy")
    model = ir.from_proto(small.model([helper.make_node("Neg", ["x"], ["y"])], [x], [y]))
    assert observe(model, [{"x": np.arange(4)}], tmp_path) == {}
