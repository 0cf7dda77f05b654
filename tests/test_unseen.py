"""Scores: the range holds what was seen, and of what comes as much as is worth its steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hexport.quantization.clipping import min_max
from hexport.quantization.encoding import QType, asymmetric
from hexport.quantization.histogram import Histogram
from hexport.quantization.unseen import range_with_unseen, scores_of
from hexport.quantization.verb import quantize
from quantised_graphs import normal, quantised, sqnr, workshop_with
from step_models import graph

rows = st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), min_size=1, max_size=12)


def of(arrays: Sequence[Any]) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.add(np.asarray(array, np.float32))
    return histogram


def squared_error(values: NDArray[Any], ends: tuple[float, float]) -> float:
    encoding = asymmetric(*ends, QType.U8)
    return float(np.mean((encoding.reals(encoding.integers(values)).astype(np.float64) - values) ** 2))


@given(rows, st.sampled_from([QType.U8, QType.S8]))
def test_what_was_seen_is_in_it_and_so_is_zero(arrays: list[list[float]], type_: QType) -> None:
    histogram = of(arrays)
    low, high = range_with_unseen(histogram, type_)
    assert low <= min(histogram.low, 0.0) <= max(histogram.high, 0.0) <= high
    width = max(histogram.high, 0.0) - min(histogram.low, 0.0)
    assert high - low <= 7.01 * width


@pytest.mark.parametrize("kind", ["normal", "exponential", "uniform"])
@pytest.mark.parametrize("numbers", [1, 4])
def test_samples_to_come_are_closer_than_with_what_was_seen(kind: str, numbers: int) -> None:
    """On the average over a thousand scores of a dozen samples each, whatever their law."""
    rng = np.random.default_rng(3)
    drawn = 2.0 + getattr(rng, kind)(size=(1000, 40, numbers)).astype(np.float32)
    with_unseen, as_seen = [], []
    for score in drawn:
        histogram = of(score[:12])
        seen = min(histogram.low, 0.0), max(histogram.high, 0.0)
        with_unseen.append(squared_error(score[12:], range_with_unseen(histogram, QType.U8)))
        as_seen.append(squared_error(score[12:], seen))
    assert np.mean(with_unseen) < 0.6 * np.mean(as_seen)


def test_ends_that_are_always_the_same_stay() -> None:
    """Pixels end at 0 and at 255 in every sample: nothing speaks for more."""
    pixels = [np.array([0.0, value, 255.0]) for value in (3.0, 90.0, 200.0, 17.0, 60.0)]
    assert range_with_unseen(of(pixels), QType.U8) == (0.0, 255.0)


def test_one_sample_says_nothing_of_others() -> None:
    assert range_with_unseen(of([[1.0, -2.0]]), QType.U8) == (-2.0, 1.0)


def test_many_samples_leave_less_to_expect() -> None:
    scores = np.random.default_rng(5).normal(size=(1000, 1)).astype(np.float32)
    few, many = of(scores[:8]), of(scores)
    beyond = [range_with_unseen(h, QType.U8)[1] / h.high - 1 for h in (few, many)]
    assert 0 <= beyond[1] < 0.5 * beyond[0]


def test_few_are_few_in_each_sample() -> None:
    assert of([np.ones(64)] * 4).has_few
    assert not of([np.ones(65)] * 4).has_few
    assert not of([*[np.ones(8)] * 4, np.ones(1000)]).has_few
    # Three samples do not tell how far others may go.
    assert not of([np.ones(64)] * 3).has_few
    assert not Histogram().has_few


def test_scores_are_what_nothing_larger_comes_after(tmp_path: Path) -> None:
    """The gate of a map has few numbers, too, and the map of 128 that it scales comes after it."""
    weight = {"w": normal(8, 8, 1, 1), "v": normal(8, 2)}
    steps = ["p = GlobalAveragePool x", "g = Conv p w", "m = Mul x g", "q = GlobalAveragePool m"]
    proto = graph([1, 8, 4, 4], *steps, "f = Flatten q", "y = MatMul f v", **weight)
    shop = workshop_with(proto, tmp_path, [{"x": normal(1, 8, 4, 4, seed=seed)} for seed in range(5)])
    assert scores_of(shop.model, shop.histograms) == {"q", "f", "y"}
    made = shop.activations("min-max")
    gate, score = (float(made.encoding(name, QType.U8).scale) for name in ("g", "y"))
    seen = {name: min_max(shop.histograms[name], QType.U8) for name in ("g", "y")}
    assert gate == pytest.approx((seen["g"][1] - seen["g"][0]) / 255, rel=0.01)
    assert score > 1.05 * (seen["y"][1] - seen["y"][0]) / 255


def test_what_ends_in_a_sigmoid_is_no_score(tmp_path: Path) -> None:
    """Its result has ends, and so has what a constant makes of it: 8 bits are for what lies between."""
    steps = ["h = MatMul x w", "m = MatMul h v", "s = Sigmoid m", "y = Mul s k"]
    proto = graph([1, 8], *steps, w=normal(8, 8), v=normal(8, 2), k=np.full(2, 5, np.float32))
    shop = workshop_with(proto, tmp_path, [{"x": normal(1, 8, seed=seed)} for seed in range(5)])
    assert not scores_of(shop.model, shop.histograms) & {"h", "m"}
    activations = shop.activations("min-max")
    for name in ("h", "m"):
        seen, kept = shop.histograms[name], activations.encoding(name, QType.U8)
        width = max(seen.high, 0.0) - min(seen.low, 0.0)
        assert kept.high - kept.low == pytest.approx(width, rel=0.01)
    assert not activations.is_open_score("y")
    assert activations.encoding("y", QType.U8).high <= 5.0 + float(activations.encoding("y", QType.U8).scale)


def score_samples(count: int, scale: float = 1.0) -> list[dict[str, NDArray[Any]]]:
    return [{"x": normal(1, 8, seed=seed, scale=scale)} for seed in range(count)]


def test_a_score_may_be_larger_than_any_that_was_seen(tmp_path: Path) -> None:
    """None of the eight that it is quantised by comes as far."""
    weight = normal(8, 1, seed=9)
    proto = graph([1, 8], "y = MatMul x w", w=weight)
    samples = sorted(score_samples(24), key=lambda one: float(np.abs(one["x"] @ weight).max()))
    made = quantised(workshop_with(proto, tmp_path, samples[8:16]), "8a8w")
    beyond = abs(float((samples[16]["x"] @ weight)[0, 0]))
    assert beyond > max(float(np.abs(one["x"] @ weight).max()) for one in samples[8:16])
    (figure,) = sqnr(proto, made, samples[16])
    assert figure > 25.0


@pytest.mark.parametrize(
    ("step", "least", "most"), [("y = Sigmoid x", 0.0, 1.0), ("y = Clip x low high", -0.5, 0.5)]
)
def test_no_further_than_anything_can_be(tmp_path: Path, step: str, least: float, most: float) -> None:
    ends = {"low": np.float32(least), "high": np.float32(most)} if "Clip" in step else {}
    scores = [{"x": np.full((1, 1), value, np.float32)} for value in (-0.4, -9.0, -9.0, -9.0, 0.4, -9.0)]
    shop = workshop_with(graph([1, 1], step, **ends), tmp_path, scores if ends else scores[:4])
    uncapped = range_with_unseen(shop.histograms["y"], QType.U8)
    assert uncapped[1] > most
    encoding = shop.activations("mse").encoding("y", QType.U8)
    step_wide = float(encoding.scale)
    assert step_wide * (QType.U8.high - int(encoding.zero_point)) <= most + step_wide
    assert step_wide * (QType.U8.low - int(encoding.zero_point)) >= least - step_wide


def test_where_a_score_ends_is_said(tmp_path: Path) -> None:
    """Of 8 bits and an open result only: a Sigmoid's end is the model's own."""
    weight = normal(8, 1, seed=9)
    model, calib = tmp_path / "m.onnx", tmp_path / "calib.npz"
    proto = graph([1, 8], "m = MatMul x w", "s = Sigmoid m", w=weight, outputs="m s")
    onnx.save(proto, model)
    np.savez(calib, x=np.stack([one["x"] for one in score_samples(8)]))
    said = {
        scheme: quantize(
            model,
            output=tmp_path / f"{scheme}.onnx",
            target="SM8650",
            scheme=scheme,
            calib=calib,
            effort="fast",
        ).warnings
        for scheme in ("8a8w", "16a8w")
    }
    (note,) = [one for one in said["8a8w"] if "cannot leave" in one]
    kept = json.loads((tmp_path / "8a8w.quant.json").read_text())["tensors"]["m"]
    assert note.startswith(f"m cannot leave {kept['low']:.3g} … {kept['high']:.3g}")
    assert not any("cannot leave" in one for one in said["16a8w"])
