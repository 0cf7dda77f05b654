"""Rules that fold affine steps and norms into the layers around them, before quantising."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexport.rewrite.integers.affine_before_layer import (
    AffineBeforeConv,
    AffineBeforeConvTranspose,
    AffineBeforeGemm,
    AffineBeforeMatMul,
)
from hexport.rewrite.integers.affine_into_layer import (
    AddIntoLayer,
    BatchNormIntoLayer,
    DivIntoLayer,
    MulIntoLayer,
    SubIntoLayer,
)
from hexport.rewrite.integers.batch_norm_to_conv import BatchNormToConv
from hexport.rewrite.integers.bias_of_zeros import (
    BiasOfZerosForConv,
    BiasOfZerosForConvTranspose,
    BiasOfZerosForGemm,
)
from hexport.rewrite.integers.conv_pads import ConvPads
from hexport.rewrite.integers.div_to_mul import DivToMul
from hexport.rewrite.integers.matmul_add_to_gemm import MatMulAddToGemm
from integer_gain import equivalence, integer_sqnr
from rule_checks import random_feeds, rewritten
from rule_outcomes import op_types, reasons
from step_models import F, graph

AFTER = (MulIntoLayer, DivIntoLayer, AddIntoLayer, SubIntoLayer, BatchNormIntoLayer)
BEFORE = (AffineBeforeConv, AffineBeforeConvTranspose, AffineBeforeGemm, AffineBeforeMatMul)

ZEROS = (BiasOfZerosForConv, BiasOfZerosForConvTranspose, BiasOfZerosForGemm)


def random(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(F)


def positive(*shape: int, seed: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(F)


def folded(before: onnx.ModelProto, *rules: Any) -> onnx.ModelProto:
    after, done = rewritten(before, *(rule() for rule in rules))
    assert done
    assert equivalence(before, after, [random_feeds(before, seed) for seed in range(3)]) > 100
    return after


NORM: dict[str, Any] = {
    "g": positive(6),
    "b": random(6),
    "mean": random(6, seed=8),
    "var": positive(6, seed=9),
}
LAYERS = {
    "conv": ("c = Conv x w bias", [1, 4, 5, 5], random(6, 4, 3, 3), (1, 6, 1, 1)),
    "grouped": ("c = Conv x w bias group=2", [1, 4, 5, 5], random(6, 2, 3, 3), (1, 6, 1, 1)),
    "rows": ("c = Conv x w", [1, 4, 9], random(6, 4, 3), (1, 6, 1)),
    "transposed": ("c = ConvTranspose x w bias group=2", [1, 4, 5, 5], random(4, 3, 2, 2), (1, 6, 1, 1)),
    "gemm": ("c = Gemm x w bias", [3, 4], random(4, 6), (6,)),
    "gemm, turned": ("c = Gemm x w transB=1", [3, 4], random(6, 4), (1, 6)),
    "norm": ("c = LayerNormalization x w bias", [2, 3, 6], random(6), (6,)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("each", [True, False], ids=["each channel", "one number"])
def test_what_follows_goes_into_the_layer(layer: str, each: bool) -> None:
    step, shape, weight, column = LAYERS[layer]
    numbers = positive(*column) if each else positive(1)
    steps = (step, "m = Mul s c", "a = Add m s", "d = Div a s", "q = Sub d s", "y = Sub s q")
    constants: dict[str, Any] = {"w": weight, "s": numbers, **({"bias": random(6)} if "bias" in step else {})}
    after = folded(graph(shape, *steps, **constants), *AFTER)
    assert len(after.graph.node) - sum(n.op_type == "Constant" for n in after.graph.node) == 1


@pytest.mark.parametrize("layer", ["conv", "transposed", "rows", "gemm"])
def test_a_norm_goes_into_the_layer_before(layer: str) -> None:
    step, shape, weight, _ = LAYERS[layer]
    constants: dict[str, Any] = {"w": weight, **NORM, **({"bias": random(6)} if "bias" in step else {})}
    after = folded(graph(shape, step, "y = BatchNormalization c g b mean var", **constants), *AFTER)
    assert "BatchNormalization" not in op_types(after)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.booleans())
@settings(max_examples=15, deadline=None)
def test_what_is_before_goes_into_any_convolution(
    groups: int, inputs: int, outputs: int, pads: bool, each: bool
) -> None:
    count = groups * inputs
    before = graph(
        [2, count, 7],
        "m = Mul x s",
        "a = Add t m",
        f"y = Conv a w group={groups} pads={'[1,1]' if pads else '[0,0]'}",
        s=positive(*(count, 1) if each else (1,)),
        t=random(*(count, 1) if each else (1,)),
        w=random(groups * outputs, inputs, 3),
    )
    after = folded(before, *BEFORE)
    assert "Mul" not in op_types(after)
    # What is added stays where the convolution pads with zeros, once.
    assert ("Add" in op_types(after)) == pads


@pytest.mark.parametrize(
    ("shape", "step", "weight"),
    [
        ([3, 4], "y = Gemm a w", random(4, 6)),
        ([3, 4], "y = Gemm a w transB=1", random(6, 4)),
        ([2, 3, 4], "y = MatMul a w", random(4, 6)),
    ],
)
def test_what_is_before_goes_into_a_product(shape: list[int], step: str, weight: np.ndarray) -> None:
    before = graph(shape, "m = Mul x s", "a = Add m t", step, s=positive(4), t=random(4), w=weight)
    after = folded(before, *BEFORE)
    assert ("Add" in op_types(after)) == ("MatMul" in step)
    assert "Mul" not in op_types(after)


def test_what_is_before_goes_into_a_transposed_convolution() -> None:
    before = graph(
        [1, 4, 5, 5], "a = Div x s", "y = ConvTranspose a w", s=positive(4, 1, 1), w=random(4, 3, 2, 2)
    )
    assert op_types(folded(before, *BEFORE)) <= {"ConvTranspose", "Constant"}


@pytest.mark.parametrize("shape", [[2, 6], [1, 6, 7], [1, 6, 3, 3], [1, 6, 2, 2, 2]])
def test_a_norm_alone_becomes_a_convolution(shape: list[int]) -> None:
    after = folded(graph(shape, "y = BatchNormalization x g b mean var", **NORM), BatchNormToConv)
    assert op_types(after) - {"Constant"} == ({"Conv"} if len(shape) in (3, 4) else {"Mul", "Add"})


@given(
    st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
    *(st.integers(low, high) for low, high in ((5, 12), (1, 4), (1, 3))),
)
@settings(max_examples=15, deadline=None)
def test_pads_are_what_auto_pad_means(mode: str, size: int, taps: int, stride: int) -> None:
    before = graph([1, 2, size], f"y = Conv x w auto_pad='{mode}' strides=[{stride}]", w=random(3, 2, taps))
    (conv,) = [node for node in folded(before, ConvPads).graph.node if node.op_type == "Conv"]
    assert "auto_pad" not in {attribute.name for attribute in conv.attribute}


@pytest.mark.parametrize("shape", [[3, 4], [2, 3, 4], [1, 2, 3, 4]])
def test_a_product_and_a_row_become_gemm(shape: list[int]) -> None:
    before = graph(shape, "p = MatMul x w", "y = Add b p", w=random(4, 6), b=random(6))
    assert op_types(folded(before, MatMulAddToGemm)) - {"Constant", "Reshape"} == {"Gemm"}


def test_division_becomes_multiplication() -> None:
    before = graph([2, 4], "y = Div x d", d=positive(4))
    assert op_types(folded(before, DivToMul)) == {"Mul", "Constant"}


CONV = "c = Conv x w"
IMAGE = [1, 4, 5, 5]
KERNEL = random(6, 4, 3, 3)


@pytest.mark.parametrize(
    ("before", "rule", "reason"),
    [
        (graph(IMAGE, CONV, "y = Mul c c", w=KERNEL), MulIntoLayer, "not one constant"),
        (graph(IMAGE, CONV, "y = Mul c s", w=KERNEL, s=positive(3, 3)), MulIntoLayer, "not one constant"),
        (graph(IMAGE, CONV, "y = Div s c", w=KERNEL, s=positive(1)), DivIntoLayer, "not one constant"),
        (
            graph(IMAGE, CONV, "y = Mul c s", outputs="y c", w=KERNEL, s=positive(1)),
            MulIntoLayer,
            "used elsewhere",
        ),
        (graph(IMAGE, "c = Conv x x", "y = Mul c s", s=positive(1)), MulIntoLayer, "not constant"),
        (
            graph([3, 4], "c = Gemm x w alpha=2.0", "y = Mul c s", w=random(4, 6), s=positive(1)),
            MulIntoLayer,
            "scales them itself",
        ),
        (
            graph([3, 4], "c = MatMul x w", "y = Add c s", w=random(4, 6), s=random(6)),
            AddIntoLayer,
            "no bias",
        ),
        (
            graph(IMAGE, "a = Add x s", "y = Conv a w pads=[1,1,1,1]", w=KERNEL, s=random(1)),
            AffineBeforeConv,
            "the padding",
        ),
        (
            graph(IMAGE, "a = Mul x s", "y = Conv a w", outputs="y a", w=KERNEL, s=random(1)),
            AffineBeforeConv,
            "used elsewhere",
        ),
        (
            graph(
                IMAGE, "a = Mul x s", "y = Conv a w", w=KERNEL, s=np.array([1, 1, 1, 99], F).reshape(4, 1, 1)
            ),
            AffineBeforeConv,
            "differ too much",
        ),
        (
            graph([3, 4], "p = MatMul x w", "y = Add p s", w=random(4, 6), s=random(3, 1)),
            MatMulAddToGemm,
            "column",
        ),
        (graph([3, 4], "y = Div x s", s=np.zeros(1, F)), DivToMul, "no inverse"),
        (graph([3, 4], "y = Div x x"), DivToMul, "not constant"),
    ],
)
def test_why_not(before: onnx.ModelProto, rule: Any, reason: str) -> None:
    assert reason in reasons(before, rule())


def gain(before: onnx.ModelProto, *rules: Any, scheme: str = "8a8w") -> float:
    """How many dB closer to float the model is on the HTP in integers, after the rules."""
    after = folded(before, *rules)
    feeds = [random_feeds(before, seed) for seed in range(2)]
    return integer_sqnr(before, after, scheme, feeds) - integer_sqnr(before, before, scheme, feeds)


def test_folding_gains_on_the_htp() -> None:
    uneven = np.array([0.05, 0.1, 0.5, 1, 2, 4], F).reshape(6, 1, 1)
    before = graph(IMAGE, CONV, "m = Mul c s", "y = Add m t", w=KERNEL, s=uneven, t=5 * random(6, 1, 1))
    assert gain(before, *AFTER) > 2


def test_gemm_gains_on_the_htp() -> None:
    before = graph([1, 16, 32], "p = MatMul x w", "y = Add p b", w=random(32, 64), b=5 * random(64))
    assert gain(before, MatMulAddToGemm) > 0.5


def test_multiplication_gains_on_the_htp() -> None:
    before = graph(IMAGE, "t = Tanh x", "y = Div t s", s=np.array([0.1, 5, 10, 20], F).reshape(4, 1, 1))
    assert gain(before, DivToMul) > 2


def test_a_norm_as_convolution_is_exact_in_16_bits_on_the_htp() -> None:
    before = graph([1, 6, 8, 8], "r = Relu x", "y = BatchNormalization r g b mean var", **NORM)
    # With 8-bit weights: each channel's one weight is exact at the channel's own scale.
    assert gain(before, BatchNormToConv, scheme="16a8w") > 10


@pytest.mark.parametrize(
    ("shape", "step", "weight"),
    [
        ([1, 4, 5, 5], "y = Conv x w", random(6, 4, 3, 3)),
        ([1, 4, 5, 5], "y = Conv x w group=4", random(8, 1, 3, 3)),
        ([1, 4, 5, 5], "y = ConvTranspose x w group=2", random(4, 3, 2, 2)),
        ([2, 4], "y = Gemm x w", random(4, 6)),
        ([2, 4], "y = Gemm x w transB=1", random(6, 4)),
    ],
)
def test_a_layer_without_a_bias_gets_one(shape: list[int], step: str, weight: np.ndarray) -> None:
    (layer,) = [n for n in folded(graph(shape, step, w=weight), *ZEROS).graph.node if n.op_type != "Constant"]
    assert len(layer.input) == 3
    assert layer.op_type == step.split()[2]


def test_a_bias_that_is_there_stays() -> None:
    before = graph(IMAGE, "y = Conv x w b", w=KERNEL, b=random(6))
    assert not rewritten(before, *(rule() for rule in ZEROS))[1]
