"""Measured bias correction: the means of a quantised model's layers become the float model's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from hexport.quantization import empirical
from hexport.quantization.empirical import float_means, measure_biases
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, PLAIN, cnn, normal, transformer, workshop, workshop_with
from rule_checks import cpu, random_feeds
from step_models import graph

MEASURED = replace(PLAIN, measure_bias=True)
LAYERS = {"conv": "c1", "depthwise": "c2", "gemm": "y"}
"""Of ``cnn``, and what they make."""


def shown(proto: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    """With these tensors as its only outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in names)
    return copy


def mean_over(proto: onnx.ModelProto, name: str, samples: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Of each channel of ``cnn``'s layers, which is axis 1 in all of them."""
    arrays = np.concatenate([cpu(shown(proto, name), sample)[0] for sample in samples])
    means: np.ndarray = arrays.mean(axis=tuple(i for i in range(arrays.ndim) if i != 1), dtype=np.float64)
    return means


def made_by(proto: onnx.ModelProto, node: str) -> str:
    return next(n for n in proto.graph.node if n.name == node).output[0]


def in_8_bits(shop: Workshop) -> Plan:
    return plan_for(shop.model, SCHEMES["8a8w"], ARCH)


def test_the_means_of_the_float_model(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    samples = list(shop.fit)
    found = float_means(shop.model, shop.layers, samples, tmp_path)
    assert set(found) == set(LAYERS)
    for name, tensor in LAYERS.items():
        assert len(found[name]) == len(samples)
        for row, sample in zip(found[name], samples, strict=True):
            np.testing.assert_allclose(row, mean_over(cnn(), tensor, [dict(sample)]), atol=1e-5)


def test_every_layer_is_brought_to_the_float_models_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last, which inherits what all before it leave."""
    # All of the shift, however few samples there are.
    monkeypatch.setattr(empirical, "_correction", lambda shifts: shifts.mean(axis=0).astype(np.float32))
    shop = workshop(cnn(), tmp_path, count=6)
    samples = [dict(sample) for sample in shop.fit]
    plan = in_8_bits(shop)
    plain, better = (ir.to_proto(shop.build(plan, recipe)) for recipe in (PLAIN, MEASURED))
    for name, tensor in LAYERS.items():
        truth = mean_over(cnn(), tensor, samples)
        before, after = (
            np.abs(mean_over(model, made_by(model, name), samples) - truth).max() for model in (plain, better)
        )
        assert before > 3e-4, "the instrument: there was something to correct"
        assert after < 0.2 * before


def test_only_biases_change(tmp_path: Path) -> None:
    shop = workshop(transformer(), tmp_path)
    plan = in_8_bits(shop)
    # It has no biases at all.
    one, two = (ir.to_proto(shop.build(plan, recipe)) for recipe in (PLAIN, MEASURED))
    assert one == two
    shop = workshop(cnn(), tmp_path, count=6)
    plan = in_8_bits(shop)
    one, two = (ir.to_proto(shop.build(plan, recipe)) for recipe in (PLAIN, MEASURED))
    assert one.graph.node == two.graph.node
    changed = {a.name for a, b in zip(one.graph.initializer, two.graph.initializer, strict=True) if a != b}
    assert changed
    assert changed <= {f"{name}_bias" for name in LAYERS}


def test_it_goes_on_from_what_was_computed(tmp_path: Path) -> None:
    """What analytic correction took out is not taken out again."""
    shop = workshop(cnn(), tmp_path, count=6)
    samples = [dict(sample) for sample in shop.fit]
    truth = mean_over(cnn(), "y", samples)
    recipes = [replace(PLAIN, correct_bias=True), replace(MEASURED, correct_bias=True)]
    models = [ir.to_proto(shop.build(in_8_bits(shop), recipe)) for recipe in recipes]
    before, after = (np.abs(mean_over(m, made_by(m, "gemm"), samples) - truth).sum() for m in models)
    assert after < before


def test_what_may_be_chance_is_not_corrected() -> None:
    rng = np.random.default_rng(0)
    sure = np.full((6, 1), 0.5) + rng.normal(size=(6, 1), scale=0.01)
    chance = np.array([[1.0], [-1.0], [2.0], [-2.0], [0.5], [-0.4]])
    found = empirical._correction(np.concatenate([sure, chance], axis=1))
    assert found[0] == pytest.approx(0.5, rel=0.05)
    assert found[1] == 0


@pytest.mark.parametrize(
    "shifts", [np.ones((1, 3)), np.full((4, 3), np.nan), np.zeros((4, 3))], ids=["one sample", "nan", "none"]
)
def test_nothing_is_corrected_by_nothing(shifts: np.ndarray) -> None:
    np.testing.assert_array_equal(empirical._correction(shifts), np.zeros(3, np.float32))


def test_layers_in_float_or_with_shared_weights_are_left_alone(tmp_path: Path) -> None:
    proto = graph(
        [1, 4, 5, 5], "a = Conv x w b", "c = Conv a w b", "d = Conv c v b", "y = Conv d u b",
        w=normal(4, 4, 1, 1), v=normal(4, 4, 1, 1, seed=1), u=normal(4, 4, 1, 1, seed=3), b=normal(4, seed=2),
    )  # fmt: skip
    shop = workshop_with(proto, tmp_path, [random_feeds(proto, seed) for seed in range(4)])
    plan = in_8_bits(shop)
    plan.set("y", FLOAT, "for a test")
    integers = shop.integers(plan, PLAIN)
    model = shop.build(plan, PLAIN)
    better = measure_biases(model, shop.layers, integers, shop.float_means, shop.fit, tmp_path)
    assert set(better) == {"a", "c", "d"}
    assert better["a"] is integers["a"]
    assert better["c"] is integers["c"]
    assert better["d"].bias is not None
    assert integers["d"].bias is not None
    assert not np.array_equal(better["d"].bias, integers["d"].bias)
    assert better["d"].integers is integers["d"].integers


def test_layers_that_do_not_follow_one_another_are_measured_together(tmp_path: Path) -> None:
    proto = graph(
        [1, 4, 5, 5], "a = Conv x w b", "c = Conv x v b", "d = Add a c", "y = Conv d u b",
        w=normal(4, 4, 1, 1), v=normal(4, 4, 1, 1, seed=1), u=normal(4, 4, 1, 1, seed=3), b=normal(4, seed=2),
    )  # fmt: skip
    shop = workshop(proto, tmp_path)
    model = shop.build(in_8_bits(shop), PLAIN)
    assert empirical._levels(model, shop.layers) == [["a", "c"], ["y"]]


def test_the_report_says_it() -> None:
    assert str(Recipe(measure_bias=True)) == f"{Recipe()}, measured bias"
