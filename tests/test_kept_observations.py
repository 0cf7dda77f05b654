"""What was observed once is read from the cache, and is the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.quantization.kept_observations import kept_histograms
from hexport.quantization.observing import observe
from hexport.quantization.verb import quantize
from hexport.rewrite.applying import infer_shapes
from quantised_graphs import cnn
from rule_checks import random_feeds


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))


def test_what_was_seen_is_kept(tmp_path: Path) -> None:
    proto = cnn(17)
    model = ir.from_proto(proto)
    infer_shapes(model)
    calls = []

    def look():
        calls.append(1)
        return observe(model, [random_feeds(proto, seed) for seed in range(2)], tmp_path)

    first = kept_histograms(model, "data", look)
    again = kept_histograms(model, "data", look)
    assert len(calls) == 1
    assert list(first) == list(again)
    for name, histogram in first.items():
        same = again[name]
        assert (same.low, same.high, same.infinite) == (histogram.low, histogram.high, histogram.infinite)
        assert (same.arrays, same.lows, same.highs) == (histogram.arrays, histogram.lows, histogram.highs)
        assert np.array_equal(same.counts, histogram.counts)
        assert np.array_equal(same.centres, histogram.centres)
    kept_histograms(model, "other data", look)
    assert len(calls) == 2


def test_nothing_to_look_at_is_kept_too() -> None:
    """Integers only: no tensor has a range, and the second look at that is no crash."""
    model = ir.from_proto(cnn(17))
    assert kept_histograms(model, "data", dict) == {}
    assert kept_histograms(model, "data", lambda: pytest.fail("looked at again")) == {}


@pytest.fixture(params=[ThreadPoolExecutor, ProcessPoolExecutor])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with request.param(2) as pool:
        yield pool


def test_candidates_may_be_compared_side_by_side(tmp_path: Path, executor: Executor) -> None:
    proto = cnn(17)
    onnx.save(proto, tmp_path / "m.onnx")
    feeds = [random_feeds(proto, seed) for seed in range(4)]
    outputs = []
    for name, pool in (("alone", None), ("together", executor)):
        output = tmp_path / f"{name}.onnx"
        quantize(
            tmp_path / "m.onnx", output=output, target="SM8650", scheme="8a8w", calib=feeds, executor=pool
        )
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]


def test_operands_that_tell_shapes_may_be_many(tmp_path: Path) -> None:
    """A Split into a hundred: its sizes are more than what onnx-ir leaves in a model by itself."""
    parts = [f"part{number}" for number in range(100)]
    proto = small.model(
        [
            helper.make_node("Split", ["x", "sizes"], parts, axis=0),
            helper.make_node("Sum", parts, ["y"]),
        ],
        [small.value("x", [100, 4])],
        [small.value("y", [1, 4])],
        [small.constant("sizes", np.ones(100, np.int64))],
    )
    model = ir.from_proto(proto)
    infer_shapes(model)
    x = np.arange(400, dtype=np.float32).reshape(100, 4)
    assert observe(model, [{"x": x}], tmp_path)["y"].high == x.sum(0).max()
