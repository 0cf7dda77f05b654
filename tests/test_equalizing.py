"""Equalisation: the same float model, its channels of like ranges where the nodes around can take factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from hexport.quantization import equalizing
from hexport.quantization.candidates import EFFORTS, suited
from hexport.quantization.channel_groups import groups_of
from hexport.quantization.equalizing import equalize
from hexport.quantization.plan import SCHEMES, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, PLAIN, cnn, normal, quantised, sqnr, transformer, workshop
from rule_checks import cpu, random_feeds
from step_models import graph

UNEVEN = np.array([1, 20, 0.1, 5, 1, 0.02, 8, 2], np.float32)
"""What the channels of trained models are like."""
EQUAL = replace(PLAIN, equalized=True)


def convolution(seed: int = 0, *, channels: int = 8) -> np.ndarray:
    """[8, channels, 1, 1], each output channel as large as its entry in UNEVEN."""
    return normal(8, channels, 1, 1, seed=seed, scale=0.4) * UNEVEN.reshape(-1, 1, 1, 1)


def between(*steps: str, end: str = "y = Conv r v", **constants: np.ndarray) -> onnx.ModelProto:
    """x → Conv to uneven channels, c → ``steps`` from c to r → a reader."""
    given: dict[str, Any] = {
        "w": convolution(channels=4),
        "b": normal(8, seed=1) * UNEVEN,
        "v": normal(3, 8, 1, 1, seed=2),
    }
    return graph([1, 4, 6, 6], "c = Conv x w b", *steps, end, **{**given, **constants})


FLAT = np.array([1, 8], np.int64)
SMALL = np.array([1, 8, 3, 3], np.int64)
TAKEN: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "Relu": (lambda: between("r = Relu c"), "r"),
    "LeakyRelu": (lambda: between("r = LeakyRelu c alpha=0.1"), "r"),
    "PRelu": (lambda: between("r = PRelu c slope", slope=normal(8, 1, 1)), "r"),
    "pools": (
        lambda: between(
            "p = MaxPool c kernel_shape=[2,2]", "r = AveragePool p kernel_shape=[3,3] pads=[1,1,1,1]"
        ),
        "r",
    ),
    "Pad": (lambda: between("r = Pad c pads", pads=np.array([0, 0, 1, 1, 0, 0, 1, 1])), "r"),
    "Gemm behind a mean": (
        lambda: between(
            "g = GlobalAveragePool c", "r = Flatten g", end="y = Gemm r v transB=1", v=normal(3, 8, seed=2)
        ),
        "r",
    ),
    "Reshape": (
        lambda: between(
            "g = GlobalAveragePool c", "r = Reshape g to", end="y = MatMul r v", to=FLAT, v=normal(8, 3)
        ),
        "r",
    ),
    "Transpose": (
        lambda: between("r = Transpose c perm=[0,2,3,1]", end="y = MatMul r v", v=normal(8, 3)),
        "r",
    ),
    "a constant added": (lambda: between("r = Add c k", k=normal(1, 8, 1, 1)), "r"),
    "a scalar added": (lambda: between("r = Add c k", k=np.array(0.5, np.float32)), "r"),
    "depthwise": (lambda: between("r = Relu c", end="y = Conv r v group=8", v=normal(8, 1, 3, 3)), "r"),
    "groups": (lambda: between("r = Relu c", end="y = Conv r v group=2", v=normal(4, 4, 1, 1)), "r"),
    "two readers": (
        lambda: between(
            "r = Relu c", "q = Conv r u", "s = Conv r v", end="y = Add q s", u=normal(3, 8, 1, 1)
        ),
        "r",
    ),
    "two that are added": (
        lambda: between("d = Conv x u", "r = Add c d", u=convolution(5, channels=4)),
        "r",
    ),
    "a gate": (
        lambda: between(
            "g = GlobalAveragePool c", "h = Conv g u", "s = Sigmoid h", "r = Mul c s",
            u=normal(8, 8, 1, 1, scale=0.01),
        ),
        "r",
    ),
}  # fmt: skip


def model_of(proto: onnx.ModelProto) -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True))


def samples_of(proto: onnx.ModelProto, count: int = 3) -> list[dict[str, np.ndarray]]:
    return [random_feeds(proto, seed) for seed in range(count)]


def unevenness(proto: onnx.ModelProto, name: str) -> float:
    """The largest channel's magnitude over the least's, of the tensor that meets weights."""
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    shown.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    (array,) = cpu(shown, random_feeds(proto, 0))[-1:]
    axis = array.shape.index(8)
    largest = np.abs(array).max(axis=tuple(i for i in range(array.ndim) if i != axis))
    return float(largest.max() / largest.min())


@pytest.mark.parametrize("form", TAKEN)
def test_channels_become_alike_and_nothing_else_changes(form: str, tmp_path: Path) -> None:
    make, read = TAKEN[form]
    proto = make()
    model = model_of(proto)
    found = equalize(model, samples_of(proto), tmp_path)
    assert found.model is not None, found.note
    assert found.tensors >= 1
    assert [node.name for node in found.model.graph] == [node.name for node in model.graph]
    after = ir.to_proto(found.model)
    onnx.checker.check_model(after, full_check=True)
    for feeds in (*samples_of(proto), random_feeds(proto, 99, -9, 9)):
        np.testing.assert_allclose(cpu(after, feeds)[0], cpu(proto, feeds)[0], rtol=1e-3, atol=1e-3)
    assert unevenness(after, read) < unevenness(proto, read) / 2
    # The model that was given is as it was.
    assert ir.to_proto(model).graph.initializer == ir.to_proto(model_of(proto)).graph.initializer


NOT_TAKEN: dict[str, onnx.ModelProto] = {
    "a bound above": between(
        "r = Clip c low high", low=np.array(0, np.float32), high=np.array(6, np.float32)
    ),
    "a curve": between("r = Sigmoid c"),
    "an output of the model": graph(
        [1, 4, 6, 6], "c = Conv x w", "y = Conv c v", outputs="c y", w=convolution(channels=4),
        v=normal(3, 8, 1, 1),
    ),
    "a reader without weights": between("s = Softmax c", "t = Add s c", "r = Relu t"),
    "weights that another node has too": graph(
        [1, 8, 6, 6], "c = Conv x w", "r = Relu c", "y = Conv r w", w=convolution()
    ),
    "channels that are moved apart": between(
        "r = Reshape c to", to=np.array([1, 16, 3, 6]), v=normal(3, 16, 1, 1)
    ),
    "filled with ones": between(
        "r = Pad c pads one", pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), one=np.array(1, np.float32)
    ),
    "its own square": between("r = Mul c c"),
    "read along another axis": between("r = Relu c", end="y = MatMul r v", v=normal(6, 3)),
}  # fmt: skip


@pytest.mark.parametrize("form", NOT_TAKEN)
def test_where_a_factor_would_be_wrong_there_is_none(form: str, tmp_path: Path) -> None:
    proto = NOT_TAKEN[form]
    model = model_of(proto)
    assert groups_of(model) == []
    found = equalize(model, samples_of(proto), tmp_path)
    assert found.model is None
    assert "no tensor" in found.note


def pre_norm() -> onnx.ModelProto:
    """The first half of a transformer's block, whose norm is read by weights only."""
    proto = transformer()
    uneven: np.ndarray = np.ones(32, np.float32)
    uneven[[3, 17]] = 30
    for tensor in proto.graph.initializer:
        if tensor.name in ("g1", "n1"):
            array = onnx.numpy_helper.to_array(tensor) * uneven
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        if tensor.name in ("wq", "wk", "wv"):
            array = onnx.numpy_helper.to_array(tensor) / uneven[:, None]
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return proto


def test_the_outliers_behind_a_norm_go_into_the_weights(tmp_path: Path) -> None:
    shop = workshop(pre_norm(), tmp_path)
    groups = {str(node.name) for group in groups_of(shop.model) for node in group.readers}
    # The second norm's result goes up; what is added to x is tied to a norm, which takes no factor.
    assert groups == {"q", "k", "v", "up"}
    assert shop.equalized.model is not None
    gains = [np.abs(ir_constant(model, "norm1", 1)) for model in (shop.model, shop.equalized.model)]
    assert gains[1].max() / gains[1].min() < gains[0].max() / gains[0].min() / 4
    feeds = random_feeds(pre_norm(), 7)
    plain, equal = (sqnr(pre_norm(), quantised(shop, "8a8w", r), feeds)[0] for r in (PLAIN, EQUAL))
    assert equal > plain


def ir_constant(model: ir.Model, node: str, index: int) -> np.ndarray:
    value = next(n for n in model.graph if n.name == node).inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def test_silent_and_unread_channels_get_a_factor_that_is_a_number(tmp_path: Path) -> None:
    weight, reader = convolution(channels=4), normal(3, 8, 1, 1, seed=2)
    weight[2], reader[:, 5] = 0, 0
    proto = between("r = Relu c", w=weight, b=np.zeros(8, np.float32), v=reader)
    found = equalize(model_of(proto), samples_of(proto), tmp_path)
    assert found.model is not None
    for value in found.model.graph.initializers.values():
        assert value.const_value is not None
        assert np.isfinite(value.const_value.numpy()).all()


def test_channels_that_are_alike_are_left_alone(tmp_path: Path) -> None:
    same = np.repeat(normal(1, 4, 1, 1), 8, axis=0)
    proto = between("r = Relu c", w=same, b=np.zeros(8, np.float32), v=np.ones((3, 8, 1, 1), np.float32))
    found = equalize(model_of(proto), samples_of(proto), tmp_path)
    assert found.model is None
    assert "alike" in found.note


def test_a_model_that_came_out_different_is_dropped_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equalizing, "_closeness", lambda *_: 59.0)
    shop = workshop(between("r = Relu c"), tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    assert shop.equalized.model is None
    said: list[str] = []
    assert suited([PLAIN, EQUAL], plan, shop, said.append) == [PLAIN]
    assert said == ["nothing is equalised: the equalised float model is only 59 dB from the model"]


def test_the_shop_makes_equalised_models_from_ranges_of_their_own(tmp_path: Path) -> None:
    # The readers make up for it, so that only r itself is uneven.
    weight = normal(8, 1, 3, 3) / UNEVEN.reshape(-1, 1, 1, 1)
    proto = between("r = LeakyRelu c alpha=0.5", end="y = Conv r v group=8", v=weight)
    shop = workshop(proto, tmp_path)
    assert shop.of(PLAIN) is shop
    other = shop.of(EQUAL)
    assert other is not shop
    assert other is shop.of(EQUAL)
    # The range stays; what lies in it does not.
    before, after = (each.histograms["r"] for each in (shop, other))
    assert max(after.high, -after.low) == pytest.approx(max(before.high, -before.low), rel=1e-3)
    assert not np.array_equal(before.counts, after.counts)
    feeds = random_feeds(proto, 7)
    plain, equal = quantised(shop, "8a8w", PLAIN), quantised(shop, "8a8w", EQUAL)
    # By the worst channel: the largest hides what the small ones lose.
    assert worst_channel(proto, equal, feeds) > worst_channel(proto, plain, feeds) + 10


def test_an_equalised_candidate_is_the_equalised_model_quantised(tmp_path: Path) -> None:
    """Its weights, ranges and graph are of one model, equalised once."""
    shop = workshop(cnn(), tmp_path)
    assert shop.equalized.model is not None
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    samples = list(shop.data)
    other = Workshop(shop.prepared, shop.equalized.model, samples, samples, tmp_path, ARCH)
    for recipe in (PLAIN, Recipe(carry_errors=True), Recipe(measure_bias=True)):
        expected = ir.to_proto(other.build(plan, recipe))
        assert ir.to_proto(shop.build(plan, replace(recipe, equalized=True))) == expected


def worst_channel(expected: onnx.ModelProto, got: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """In dB."""
    a, b = cpu(expected, feeds)[0].astype(np.float64), cpu(got, feeds)[0]
    ratios = np.sum(a**2, axis=(0, 2, 3)) / np.maximum(np.sum((b - a) ** 2, axis=(0, 2, 3)), 1e-20)
    return float(10 * np.log10(ratios.min()))


def shop_with_a_given_range(folder: Path) -> Workshop:
    shop = workshop(between("r = Relu c"), folder)
    shop.overrides["r"] = (0.0, 5.0, None)
    return shop


def test_ranges_that_were_given_are_of_the_tensors_as_they_are(tmp_path: Path) -> None:
    shop = shop_with_a_given_range(tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    assert suited([PLAIN, EQUAL], plan, shop, pytest.fail) == [PLAIN]
    # A recipe that was given back with them is theirs.
    assert suited([EQUAL], plan, shop, pytest.fail) == [EQUAL]


def test_16_bits_need_no_other_ranges_but_may_be_equalised(tmp_path: Path) -> None:
    shop = workshop(between("r = Relu c"), tmp_path)
    recipes = [Recipe(), Recipe("min-max"), Recipe(equalized=True)]
    for scheme, expected in (("16a8w", [recipes[0], recipes[2]]), ("8a8w", recipes)):
        plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
        assert suited(recipes, plan, shop, pytest.fail) == expected


def test_what_needs_no_pass_of_its_own_is_tried_first() -> None:
    assert not any(effort.recipes[0].equalized for effort in EFFORTS.values())
