"""Rules for what ONNX Runtime's optimiser and quantiser write: the com.microsoft domain, integer products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.rewrite.support.embed_layer_norm import EmbedLayerNormApart
from hexport.rewrite.support.fused_activation import FusedConvApart, FusedGemmApart
from hexport.rewrite.support.microsoft_attention import MicrosoftAttentionApart
from hexport.rewrite.support.microsoft_rotary_embedding import MicrosoftRotaryEmbeddingApart
from hexport.rewrite.support.multi_head_attention import MultiHeadAttentionApart
from hexport.rewrite.support.skip_layer_norm import (
    SkipLayerNorm,
    SkipLayerNormWithSum,
    SkipRmsNorm,
    SkipRmsNormWithSum,
)
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten, verdict
from rule_forms import I32, I64, MICROSOFT, F, Typed, contrib, random, side_by_side

X = (2, 3, 8)
SUM = ("y", "", "", "sum")
MHA, MSA = "MultiHeadAttention", "Attention"
FORMS = {
    "skip": contrib(SkipLayerNorm, "SkipLayerNormalization", (X, X, random(8))),
    "skip, beta and bias": contrib(
        SkipLayerNorm,
        "SkipLayerNormalization",
        (X, X, random(8), random(8), random(8, seed=1)),
        opset=11,
        epsilon=1e-5,
    ),
    "skip with sum": contrib(
        SkipLayerNormWithSum, "SkipLayerNormalization", (X, X, random(8), random(8)), outputs=SUM
    ),
    "skip rms": contrib(
        SkipRmsNorm, "SkipSimplifiedLayerNormalization", (X, X, random(8)), opset=23, epsilon=1e-6
    ),
    "skip rms with sum": contrib(
        SkipRmsNormWithSum, "SkipSimplifiedLayerNormalization", (X, X, random(8), random(8)), 14, outputs=SUM
    ),
    "heads": contrib(MultiHeadAttentionApart, MHA, ((1, 3, 8), (1, 5, 8), (1, 5, 8)), num_heads=2),
    "heads, biases and padding": contrib(
        MultiHeadAttentionApart,
        MHA,
        ((2, 3, 8), (2, 5, 8), (2, 5, 8), random(24), Typed((2, 5), I32), (1, 2, 3, 5)),
        num_heads=2,
        scale=0.3,
    ),
    "heads, causal, wide values": contrib(
        MultiHeadAttentionApart, MHA, ((1, 4, 8), (1, 4, 8), (1, 4, 12)), num_heads=2, unidirectional=1
    ),
    "attention": contrib(
        MicrosoftAttentionApart, MSA, ((1, 3, 8), random(8, 24) - 1, random(24)), num_heads=2, opset=12
    ),
    "attention, mask": contrib(
        MicrosoftAttentionApart,
        MSA,
        ((2, 3, 8), random(8, 24) - 1, random(24), Typed((2, 3), I32)),
        num_heads=4,
        mask_filter_value=-1000.0,
    ),
    "attention, causal": contrib(
        MicrosoftAttentionApart,
        MSA,
        ((1, 4, 8), random(8, 20) - 1, random(20)),
        num_heads=2,
        unidirectional=1,
        qkv_hidden_sizes=[8, 8, 4],
    ),
    "rotary": contrib(
        MicrosoftRotaryEmbeddingApart,
        "RotaryEmbedding",
        ((1, 2, 3, 8), Typed((1, 3), I64), random(5, 4), random(5, 4, seed=1)),
    ),
    "rotary, flat": contrib(
        MicrosoftRotaryEmbeddingApart,
        "RotaryEmbedding",
        ((2, 3, 16), Typed((2, 3), I64), random(5, 4), random(5, 4, seed=1)),
        interleaved=1,
    ),
    "embedding": contrib(
        EmbedLayerNormApart,
        "EmbedLayerNormalization",
        (
            *(Typed((2, 3), I32), Typed((2, 3), I32), random(5, 8), random(6, 8, seed=1)),
            *(random(4, 8, seed=2), random(8), random(8)),
        ),
        outputs=("y", "_lengths"),
    ),
    "conv and relu": contrib(
        FusedConvApart,
        "FusedConv",
        ((1, 2, 5, 5), random(3, 2, 3, 3) - 1),
        activation="Relu",
        pads=[1] * 4,
    ),
    "conv, sum and leaky relu": contrib(
        FusedConvApart,
        "FusedConv",
        ((1, 2, 5, 5), random(3, 2, 3, 3) - 1, random(3), (1, 3, 3, 3)),
        activation="LeakyRelu",
        activation_params=[0.3],
    ),
    "conv and clip": contrib(
        FusedConvApart,
        "FusedConv",
        ((1, 2, 5, 5), random(3, 2, 3, 3) - 1),
        activation="Clip",
        activation_params=[0.0, 6.0],
    ),
    "gemm and leaky relu": contrib(
        FusedGemmApart,
        "FusedGemm",
        ((2, 3), random(4, 3) - 1, random(4)),
        transB=1,
        activation="LeakyRelu",
        activation_alpha=0.2,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_equivalent(name: str) -> None:
    form = FORMS[name]
    before = form.model()
    after, done = rewritten(before, form.rule())
    assert [(a.rule, a.nodes) for a in done] == [(form.rule.__name__, ("it",))]
    assert MICROSOFT not in {node.domain for node in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], rtol=1e-4, atol=1e-5)


def test_the_backend_before_and_after() -> None:
    older = [replace(form, opset=18) for form in FORMS.values() if form.opset < 23]
    before = side_by_side([form.model() for form in older])
    assert {node.name for node in verdict(before).cpu_nodes} == {node.name for node in before.graph.node}
    after, _ = rewritten(before, *(rule() for rule in dict.fromkeys(form.rule for form in older)))
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


def encoder(layers: int, opset: int, dtype: type = F, hidden: int = 8) -> onnx.ModelProto:
    """Fused operators in a row, through which ONNX infers neither shape nor type."""
    nodes, constants, last = [], [], "x"
    for i in range(layers):
        for part in "qkv":
            constants.append(
                small.constant(f"w{part}{i}", (random(hidden, hidden, seed=i) - 1).astype(dtype))
            )
            nodes.append(helper.make_node("MatMul", [last, f"w{part}{i}"], [f"{part}{i}"]))
        constants.append(small.constant(f"g{i}", random(hidden).astype(dtype)))
        heads = [f"q{i}", f"k{i}", f"v{i}"]
        nodes.append(helper.make_node("MultiHeadAttention", heads, [f"a{i}"], domain=MICROSOFT, num_heads=2))
        inputs = [f"a{i}", last, f"g{i}"]
        nodes.append(helper.make_node("SkipLayerNormalization", inputs, [f"n{i}"], domain=MICROSOFT))
        last = f"n{i}"
    nodes.append(helper.make_node("Relu", [last], ["y"]))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (small.value(name, [1, 4, hidden], element) for name in "xy")
    proto = small.model(nodes, [x], [y], constants, opset)
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return proto


@pytest.mark.parametrize("opset", [14, 17])
def test_a_deep_encoder_is_taken_apart_at_once(opset: int) -> None:
    before = encoder(12, opset)
    after, _ = rewritten(before, SkipLayerNorm(), MultiHeadAttentionApart())
    assert MICROSOFT not in {node.domain for node in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("opset", [14, 17])
def test_half_precision_keeps_its_type(opset: int) -> None:
    # ONNX Runtime's CPU has no such attention: the checker's types are what is tested.
    after, _ = rewritten(encoder(3, opset, np.float16), SkipLayerNorm(), MultiHeadAttentionApart())
    assert MICROSOFT not in {node.domain for node in after.graph.node}
    inferred = onnx.shape_inference.infer_shapes(after, strict_mode=True)
    kinds = {value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    assert TensorProto.FLOAT16 in kinds
    assert TensorProto.FLOAT not in kinds


REASONS = {
    "the mask is not of fixed shape": replace(
        FORMS["attention, mask"], inputs=(*FORMS["attention, mask"].inputs[:3], Typed((2,), I32))
    ),
    "past keys and values": contrib(
        MultiHeadAttentionApart,
        MHA,
        ((1, 1, 8), (1, 1, 8), (1, 1, 8), None, None, None, (1, 2, 3, 4), (1, 2, 3, 4)),
        num_heads=2,
    ),
    "not of rank 3": contrib(
        MultiHeadAttentionApart, MHA, ((1, 3, 8), (1, 2, 5, 4), (1, 2, 5, 4)), num_heads=2
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_says_why_not(reason: str) -> None:
    form = REASONS[reason]
    rule = form.rule()
    _, done = rewritten(form.model(), rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "it"
    assert reason in why


@given(
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_any_attention(batch: int, queries: int, keys: int, heads: int, size: int, masked: bool) -> None:
    width = heads * size
    extra = (None, Typed((batch, keys), I32)) if masked else ()
    inputs = ((batch, queries, width), (batch, keys, width), (batch, keys, width), *extra)
    before = contrib(MultiHeadAttentionApart, MHA, inputs, num_heads=heads).model()
    after, done = rewritten(before, MultiHeadAttentionApart())
    assert done
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-4, atol=1e-5)
