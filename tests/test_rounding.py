"""Better integers than the nearest, and the vectors that a layer multiplies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport.quantization.encoding import QType
from hexport.quantization.layer_inputs import Moments, moments_of, no_squares, patches
from hexport.quantization.patch_sums import sum_of_patches, window_of
from hexport.quantization.plan import SCHEMES, Precision
from hexport.quantization.rounding import as_rows, carry_errors, correct_bias
from hexport.quantization.weights import Layer, LayerIntegers, layers_of, nearest, weight_encoding
from quantised_graphs import cnn, normal
from rule_checks import cpu, random_feeds
from test_weights import layer

FOUR = SCHEMES["16a4w"]


def correlated(count: int, length: int, seed: int = 0) -> np.ndarray:
    """Vectors of a few hidden causes, with a mean: what layers of trained models see."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(count, max(2, length // 4))) @ rng.normal(size=(max(2, length // 4), length))
    return (causes + 0.1 * rng.normal(size=(count, length)) + 0.5).astype(np.float32)


def seen(*samples: np.ndarray) -> Moments:
    """The moments of [group, count, length] each."""
    groups, _, length = samples[0].shape
    moments = Moments(0, np.zeros((groups, length)), no_squares(groups, length))
    for vectors in samples:
        moments.add(vectors)
    return moments


def rounded(found: Layer, precision: Precision = FOUR) -> LayerIntegers:
    return nearest(found, weight_encoding(found, precision, 1e-3))


def output_error(found: Layer, integers: LayerIntegers, vectors: np.ndarray) -> np.ndarray:
    """Of the layer's results, [group, count, output]."""
    change = as_rows(found, integers.weight - found.weight)
    result: np.ndarray = np.einsum("gol,gcl->gco", change.astype(np.float64), vectors.astype(np.float64))
    return result


LAYERS = {
    "MatMul": (layer("MatMul", normal(24, 16)), 1, 24),
    "Gemm": (layer("Gemm", normal(24, 16), normal(16)), 1, 24),
    "Gemm transB": (layer("Gemm", normal(16, 24), normal(16), transB=1), 1, 24),
    "Conv": (layer("Conv", normal(16, 8, 3), normal(16)), 1, 24),
    "grouped Conv": (layer("Conv", normal(8, 8, 3), normal(8), group=2), 2, 24),
    "depthwise Conv": (layer("Conv", normal(6, 1, 3, 3), normal(6), group=6), 6, 9),
    # More inputs than one block of the blocked update.
    "wide MatMul": (layer("MatMul", normal(150, 4)), 1, 150),
}


@pytest.mark.parametrize("name", LAYERS)
def test_carried_errors_change_the_result_less(name: str) -> None:
    found, groups, length = LAYERS[name]
    fitted = np.stack([correlated(600, length, seed) for seed in range(groups)])
    plain = rounded(found)
    better = carry_errors(found, plain, seen(fitted))
    assert better.integers.shape == plain.integers.shape
    assert np.abs(better.integers).max() <= QType.S4.high
    before, after = (np.mean(output_error(found, r, fitted) ** 2) for r in (plain, better))
    assert after < 0.7 * before


def test_carried_errors_of_unrelated_inputs_are_the_nearest() -> None:
    """With nothing to make up for, there is nothing to move."""
    found = layer("MatMul", normal(8, 4))
    moments = Moments(100, np.zeros((1, 8)), (50 * np.eye(8)[None], 50 * np.eye(8)[None]))
    np.testing.assert_array_equal(
        carry_errors(found, rounded(found), moments).integers, rounded(found).integers
    )


@pytest.mark.parametrize("squares", [np.zeros((1, 8, 8)), np.full((1, 8, 8), np.inf), None])
def test_inputs_that_were_never_active_or_beyond_numbers(squares: np.ndarray | None) -> None:
    found = layer("MatMul", normal(8, 4))
    moments = Moments(100, np.zeros((1, 8)), None if squares is None else (squares, squares))
    np.testing.assert_array_equal(
        carry_errors(found, rounded(found), moments).integers, rounded(found).integers
    )


def test_an_input_that_is_always_zero_beside_others() -> None:
    found, vectors = layer("MatMul", normal(8, 4)), correlated(100, 8)[None]
    vectors[:, :, 3] = 0
    better = carry_errors(found, rounded(found), seen(vectors))
    assert np.isfinite(better.weight).all()


@pytest.mark.parametrize("name", [name for name in LAYERS if LAYERS[name][0].bias is not None])
@pytest.mark.parametrize("carried", [False, True])
def test_the_corrected_bias_takes_back_the_mean_error(name: str, carried: bool) -> None:
    found, groups, length = LAYERS[name]
    fitted = np.stack([correlated(500, length, seed) for seed in range(groups)])
    moments, integers = seen(fitted), rounded(found)
    if carried:
        integers = carry_errors(found, integers, moments)
    corrected = correct_bias(found, integers, moments)
    assert corrected.bias is not None
    assert found.bias is not None
    mean_error = output_error(found, corrected, fitted).mean(axis=1).reshape(-1)
    np.testing.assert_allclose(corrected.bias - found.bias, -mean_error, atol=1e-4)
    assert np.abs(mean_error).max() > 0.01, "the instrument: there was something to correct"


def test_without_a_bias_nothing_is_corrected() -> None:
    found = layer("MatMul", normal(8, 4))
    plain = rounded(found)
    assert correct_bias(found, plain, seen(correlated(10, 8)[None])) is plain


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Layer, np.ndarray]:
    """A convolution of any form, and an input it takes."""
    rank, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    each = draw(st.integers(1, 2))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    sizes = draw(st.lists(st.integers(6, 9), min_size=rank, max_size=rank))
    outputs = group * draw(st.integers(1, 2))
    weight = normal(outputs, each, *kernel, seed=draw(st.integers(0, 9)))
    found = layer("Conv", weight, group=group, strides=strides, dilations=dilations, pads=pads)
    return found, normal(draw(st.integers(1, 2)), group * each, *sizes, seed=11)


def convolve(found: Layer, x: np.ndarray) -> np.ndarray:
    """By onnxruntime, as [output, place]."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], **{
        name: attribute.value for name, attribute in found.node.attributes.items()
    })  # fmt: skip
    proto = small.model(
        [node],
        [small.value("x", list(x.shape))],
        [small.value("y", None)],
        [small.constant("w", found.weight)],
    )
    (result,) = cpu(proto, {"x": x})
    return np.moveaxis(result, 1, 0).reshape(result.shape[1], -1)


@settings(max_examples=60)
@given(convolutions())
def test_patches_are_what_a_convolution_multiplies(given: tuple[Layer, np.ndarray]) -> None:
    found, x = given
    vectors = patches(found, x)
    assert vectors is not None
    products = np.einsum("gol,gcl->goc", as_rows(found, found.weight), vectors)
    np.testing.assert_allclose(products.reshape(found.weight.shape[0], -1), convolve(found, x), atol=1e-4)


@settings(max_examples=60)
@given(convolutions())
def test_their_sum_is_taken_without_making_them(given: tuple[Layer, np.ndarray]) -> None:
    found, x = given
    vectors = patches(found, x, most=10**9)
    window = window_of(found.node, found.weight.shape[2:])
    assert vectors is not None
    assert window is not None
    count, total = sum_of_patches(window, x)
    assert count == vectors.shape[1]
    np.testing.assert_allclose(total.reshape(vectors.shape[0], -1), vectors.sum(axis=1), atol=1e-4)


def test_patches_of_products() -> None:
    x = normal(2, 3, 8)
    found = layer("MatMul", normal(8, 4))
    np.testing.assert_array_equal(patches(found, x), x.reshape(1, 6, 8))
    turned = layer("Gemm", normal(8, 4), transA=1)
    np.testing.assert_array_equal(patches(turned, normal(8, 3)), normal(8, 3).T[None])


def test_many_patches_are_thinned_evenly() -> None:
    rows = np.arange(95, dtype=np.float32).reshape(95, 1)
    np.testing.assert_array_equal(patches(layer("MatMul", normal(1, 4)), rows, 10), rows[None, ::10])
    found = layer("Conv", normal(2, 3, 3, 3))
    thinned = patches(found, normal(1, 3, 16, 16), 10)
    assert thinned is not None
    assert 5 <= thinned.shape[1] <= 10


@pytest.mark.parametrize("attributes", [{"auto_pad": "SAME_UPPER"}, {"pads": [-1, 0, 0, 0]}])
def test_forms_that_are_not_told(attributes: dict[str, Any]) -> None:
    assert patches(layer("Conv", normal(2, 3, 3, 3), **attributes), normal(1, 3, 8, 8)) is None


def test_the_moments_of_a_whole_model(tmp_path: Path) -> None:
    """Of layers behind the input and of those inside, over all samples."""
    proto = cnn()
    model = ir.from_proto(proto)
    for node in model.graph:
        for value in node.outputs:
            value.dtype = ir.DataType.FLOAT
    layers = layers_of(model)
    assert set(layers) == {"conv", "depthwise", "gemm"}
    samples = [random_feeds(proto, seed) for seed in range(3)]
    found = moments_of(model, layers, samples, tmp_path, squares=True)
    inner = helper.make_tensor_value_info("f", 1, None)
    proto.graph.output.append(inner)
    vectors = np.concatenate([cpu(proto, sample)[1] for sample in samples])
    assert found["gemm"].count == 3
    np.testing.assert_allclose(found["gemm"].mean[0], vectors.mean(axis=0), rtol=1e-5)
    assert found["gemm"].squares is not None
    np.testing.assert_allclose(found["gemm"].squares[0], vectors.T @ vectors, rtol=1e-5)
    assert found["conv"].count == 3 * 16 * 16
    assert found["depthwise"].mean.shape == (8, 9)
    assert moments_of(model, layers, samples, tmp_path, squares=False)["gemm"].squares is None
