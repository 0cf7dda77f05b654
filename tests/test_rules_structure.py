"""Rules for shapes, indices, pads, sums and norms that the backend refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexport.errors import HexportError
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.batch_norm_to_mul_add import BatchNormToMulAdd
from hexport.rewrite.support.clip_to_max_min import ClipToMaxMin
from hexport.rewrite.support.compress_to_gather import CompressToGather
from hexport.rewrite.support.cumsum_plain import CumSumPlain
from hexport.rewrite.support.eye_like_folded import EyeLikeFolded
from hexport.rewrite.support.gemm_scale import GemmScale
from hexport.rewrite.support.group_norm_to_instance_norm import GroupNormOutsideImages, GroupNormPerGroup
from hexport.rewrite.support.instance_norm_flat import InstanceNormFlat
from hexport.rewrite.support.layer_norm_last_axis import LayerNormLastAxis, RmsNormLastAxis
from hexport.rewrite.support.lp_normalization_l1 import LpNormalizationL1
from hexport.rewrite.support.pad_by_concat import PadByConcat
from hexport.rewrite.support.pad_by_gather import PadByGather, PadEdgeByGather
from hexport.rewrite.support.reverse_sequence_to_gather import ReverseSequenceToGather
from hexport.rewrite.support.trilu_to_where import TriluToWhere
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten, verdict
from rule_forms import BOOL, I64, F, Form, Typed, random, side_by_side

FORMS = {
    "clip, both bounds": Form(ClipToMaxMin, "Clip", ((2, 3), (), ())),
    "clip, low": Form(ClipToMaxMin, "Clip", ((2, 3), ())),
    "clip, high": Form(ClipToMaxMin, "Clip", ((2, 3), None, ()), opset=11),
    "clip, whole numbers": Form(ClipToMaxMin, "Clip", (Typed((2, 3), I64), Typed((), I64), np.array(2))),
    "gemm, constants": Form(
        GemmScale, "Gemm", ((2, 3), random(3, 4), random(4)), {"alpha": 0.5, "beta": 2.0}
    ),
    "gemm, computed": Form(
        GemmScale, "Gemm", ((3, 2), (4, 3), (4,)), {"alpha": 0.5, "transA": 1, "transB": 1}
    ),
    "gemm, constant left": Form(GemmScale, "Gemm", (random(2, 3), (3, 4)), {"alpha": 3.0}, opset=11),
    "gemm, no bias": Form(GemmScale, "Gemm", ((2, 3), random(3, 4), random(4)), {"alpha": 2.0, "beta": 0.0}),
    "trilu, upper": Form(TriluToWhere, "Trilu", ((2, 4, 4),)),
    "trilu, lower": Form(TriluToWhere, "Trilu", ((4, 5), np.array(1)), {"upper": 0}),
    "trilu, bool": Form(TriluToWhere, "Trilu", (Typed((2, 4, 4), BOOL), np.array(-1))),
    "trilu, whole numbers": Form(TriluToWhere, "Trilu", (Typed((3, 4), I64),), {"upper": 0}),
    "cumsum, exclusive": Form(CumSumPlain, "CumSum", ((2, 3, 4), np.array(1)), {"exclusive": 1}),
    "cumsum, reverse": Form(CumSumPlain, "CumSum", ((2, 3, 4), np.array(-1)), {"reverse": 1}, opset=11),
    "cumsum, both": Form(CumSumPlain, "CumSum", ((2, 5), np.array(1)), {"reverse": 1, "exclusive": 1}),
    "reverse, all": Form(ReverseSequenceToGather, "ReverseSequence", ((4, 3, 2), np.array([4, 4, 4]))),
    "reverse, time first": Form(ReverseSequenceToGather, "ReverseSequence", ((4, 3, 2), np.array([4, 2, 1]))),
    "reverse, batch first": Form(
        ReverseSequenceToGather,
        "ReverseSequence",
        ((2, 5), np.array([3, 5])),
        {"batch_axis": 0, "time_axis": 1},
    ),
    "pad, wrap": Form(
        PadByGather, "Pad", ((1, 2, 4, 5), np.array([0, 0, 1, 2, 0, 0, 2, -1])), {"mode": "wrap"}, 19
    ),
    "pad, reflect a volume": Form(
        PadByGather, "Pad", ((1, 2, 4, 4, 3), np.array([0, 0, 1, 1, 2] * 2)), {"mode": "reflect"}, 13
    ),
    "pad, axes": Form(PadByConcat, "Pad", ((1, 2, 4), np.array([1, 2]), None, np.array([-1])), opset=18),
    "pad, whole numbers": Form(
        PadByConcat, "Pad", (Typed((2, 3), I64), np.array([0, 1, 1, -1]), np.array(5)), opset=13
    ),
    "pad, bool": Form(PadByConcat, "Pad", (Typed((2, 3), BOOL), np.array([0, 1, 1, 0])), opset=13),
    "pad, computed value": Form(PadByConcat, "Pad", ((2, 3), np.array([0, 1, 1, 0]), ())),
    "batch norm, volume": Form(
        BatchNormToMulAdd, "BatchNormalization", ((1, 4, 3, 2, 2), *(random(4, seed=s) for s in range(4)))
    ),
    "batch norm, computed": Form(
        BatchNormToMulAdd, "BatchNormalization", ((2, 4, 3), (4,), (4,), random(4), random(4, seed=1))
    ),
    "instance norm, volume": Form(
        InstanceNormFlat, "InstanceNormalization", ((2, 4, 3, 2, 2), random(4), random(4, seed=1))
    ),
    "layer norm, axis 1": Form(
        LayerNormLastAxis, "LayerNormalization", ((2, 3, 4), random(3, 4), random(3, 4)), {"axis": 1}
    ),
    "layer norm, computed scale": Form(
        LayerNormLastAxis, "LayerNormalization", ((2, 3, 4), (3, 4)), {"axis": -2}
    ),
    "layer norm, one scale": Form(LayerNormLastAxis, "LayerNormalization", ((2, 3, 4), random(1))),
    "layer norm, wide scale": Form(LayerNormLastAxis, "LayerNormalization", ((2, 3, 4), random(1, 4))),
    "rms norm, axis 1": Form(RmsNormLastAxis, "RMSNormalization", ((2, 3, 4), random(3, 4)), {"axis": 1}, 23),
    "l1 norm": Form(LpNormalizationL1, "LpNormalization", ((2, 3, 4),), {"p": 1, "axis": 1}),
    "l1 norm, opset 11": Form(LpNormalizationL1, "LpNormalization", ((2, 3),), {"p": 1}, 11),
    "eye": Form(EyeLikeFolded, "EyeLike", ((3, 4),), {"k": 1}),
    "compress": Form(CompressToGather, "Compress", ((2, 3, 4), np.array([True, False, True])), {"axis": 1}),
    "compress, flat": Form(CompressToGather, "Compress", ((2, 3), np.array([True, False, True, True]))),
}
FAULTY = {
    "pad, edge": Form(
        PadEdgeByGather, "Pad", ((1, 2, 4, 5), np.array([0, 0, 1, 2, 0, 0, 2, 1])), {"mode": "edge"}, 13
    ),
    "group norm, rows": Form(
        GroupNormOutsideImages, "GroupNormalization", ((2, 4, 5), random(4), random(4)), {"num_groups": 2}, 21
    ),
    "group norm, volume": Form(
        GroupNormOutsideImages,
        "GroupNormalization",
        ((1, 4, 3, 2, 2), random(4), random(4)),
        {"num_groups": 2},
        21,
    ),
    "group norm, a scale a group": Form(
        GroupNormPerGroup, "GroupNormalization", ((1, 4, 3, 3), random(2), random(2)), {"num_groups": 2}, 18
    ),
}
ALL = {**FORMS, **FAULTY}


@pytest.mark.parametrize("name", ALL)
def test_equivalent(name: str) -> None:
    form = ALL[name]
    before = form.model()
    after, done = rewritten(before, form.rule())
    assert [(a.rule, a.nodes) for a in done] == [(form.rule.__name__, ("it",))]
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], atol=1e-5)


REASONS = {
    "its bounds are constant": Form(ClipToMaxMin, "Clip", ((2, 3), np.array(0, F), np.array(1, F))),
    "alpha is 1": Form(GemmScale, "Gemm", ((2, 3), random(3, 4))),
    "k is not constant": Form(TriluToWhere, "Trilu", ((3, 4), Typed((), I64))),
    "it is plain already": Form(CumSumPlain, "CumSum", ((2, 3), np.array(1))),
    "the axis is not constant": Form(CumSumPlain, "CumSum", ((2, 2), Typed((), I64)), {"reverse": 1}),
    "the lengths are not constant": Form(
        ReverseSequenceToGather, "ReverseSequence", ((4, 3), Typed((3,), I64))
    ),
    "its mode is constant": Form(PadByGather, "Pad", ((2, 3), np.array([0, 1, 0, 1]))),
    "a plain Pad": Form(PadByConcat, "Pad", ((2, 3), np.array([0, 1, 0, 1]))),
    "it is of an image": Form(
        GroupNormOutsideImages,
        "GroupNormalization",
        ((1, 4, 3, 3), random(4), random(4)),
        {"num_groups": 2},
        21,
    ),
    "a scale for every channel": Form(
        GroupNormPerGroup, "GroupNormalization", ((1, 4, 3, 3), random(4), random(4)), {"num_groups": 2}, 21
    ),
    "its rank is 4": Form(InstanceNormFlat, "InstanceNormalization", ((1, 4, 3, 3), random(4), random(4))),
    "over the last axis": Form(LayerNormLastAxis, "LayerNormalization", ((2, 4), random(4))),
    "would be broadcast": Form(LayerNormLastAxis, "LayerNormalization", ((2, 3, 4), (1,))),
    "p is 2": Form(LpNormalizationL1, "LpNormalization", ((2, 3),)),
    "the condition is not constant": Form(
        CompressToGather, "Compress", ((2, 3), Typed((3,), BOOL)), {"axis": 1}
    ),
    "it reflects floats": Form(PadByGather, "Pad", ((2, 3), np.array([0, 1, 0, 1])), {"mode": "reflect"}),
    "its parameters are constant": Form(
        BatchNormToMulAdd, "BatchNormalization", ((1, 4, 2, 2), *(random(4) for _ in range(4)))
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


def backend_models() -> dict[str, onnx.ModelProto]:
    """Every refused form, in as few opsets as serve all."""
    older = [replace(form, opset=18) for form in FORMS.values() if form.opset < 19]
    newer = [replace(form, opset=23) for form in FORMS.values() if form.opset >= 19]
    return {"18": side_by_side([f.model() for f in older]), "23": side_by_side([f.model() for f in newer])}


def rules_of(forms: Iterable[Form]) -> list[Rule]:
    return [rule() for rule in dict.fromkeys(form.rule for form in forms)]


@pytest.mark.parametrize("opset", ["18", "23"])
def test_the_backend_before_and_after(opset: str) -> None:
    before = backend_models()[opset]
    refused = {node.name for node in verdict(before).cpu_nodes}
    assert refused == {node.name for node in before.graph.node}
    after, _ = rewritten(before, *rules_of(FORMS.values()))
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


def test_faults_before_and_after() -> None:
    edge, rows, volume = (FAULTY[name] for name in ("pad, edge", "group norm, rows", "group norm, volume"))
    wrong = [edge.model(), rows.model()]
    assert all(htp_sqnr(proto, proto, [random_feeds(proto)]) < 30 for proto in wrong)
    with pytest.raises(HexportError):
        verdict(volume.model())
    forms = [replace(form, opset=21) for form in (edge, rows, volume)]
    before = side_by_side([form.model() for form in forms])
    after, _ = rewritten(before, *rules_of(forms))
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


def test_group_norm_with_a_scale_a_group() -> None:
    before = FAULTY["group norm, a scale a group"].model()
    assert cpu_ops(before)
    after, _ = rewritten(before, GroupNormPerGroup())
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 1),
)
@settings(max_examples=15, deadline=None)
def test_any_cumsum(shape: tuple[int, ...], axis: int, exclusive: int, reverse: int) -> None:
    attributes = {"exclusive": exclusive, "reverse": reverse}
    before = Form(CumSumPlain, "CumSum", (shape, np.array(axis % len(shape))), attributes).model()
    after, done = rewritten(before, CumSumPlain())
    assert bool(done) == bool(exclusive or reverse)
    assert_equivalent(before, after, [random_feeds(before)], atol=1e-5)


@given(st.lists(st.integers(2, 4), min_size=2, max_size=4).map(tuple), st.integers(-5, 5), st.integers(0, 1))
@settings(max_examples=15, deadline=None)
def test_any_triangle(shape: tuple[int, ...], k: int, upper: int) -> None:
    before = Form(TriluToWhere, "Trilu", (shape, np.array(k)), {"upper": upper}).model()
    after, _ = rewritten(before, TriluToWhere())
    assert_equivalent(before, after, [random_feeds(before)])


@given(
    st.sampled_from(["edge", "reflect", "wrap"]),
    st.lists(st.tuples(st.integers(3, 5), st.integers(-1, 2), st.integers(-1, 2)), min_size=1, max_size=3),
)
@settings(max_examples=15, deadline=None)
def test_any_pad(mode: str, axes: list[tuple[int, int, int]]) -> None:
    shape, before_pads, after_pads = (tuple(axis[i] for axis in axes) for i in range(3))
    # ONNX Runtime's reflection needs an axis longer than its pad after the cut.
    if mode == "reflect":
        before_pads, after_pads = (tuple(max(pad, 0) for pad in pads) for pads in (before_pads, after_pads))
        shape, before_pads, after_pads = (1, 1, 1, 1, *shape), (0,) * 4 + before_pads, (0,) * 4 + after_pads
    rule = PadEdgeByGather if mode == "edge" else PadByGather
    before = Form(rule, "Pad", (shape, np.array([*before_pads, *after_pads])), {"mode": mode}, 19).model()
    after, _ = rewritten(before, rule())
    assert_equivalent(before, after, [random_feeds(before)])


@given(st.integers(1, 5), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 1))
@settings(max_examples=15, deadline=None)
def test_any_lengths(time: int, lengths: list[int], time_axis: int) -> None:
    shape = (time, len(lengths), 2) if time_axis == 0 else (len(lengths), time, 2)
    attributes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    before = Form(
        ReverseSequenceToGather,
        "ReverseSequence",
        (shape, np.array([min(length, time) for length in lengths])),
        attributes,
    ).model()
    after, _ = rewritten(before, ReverseSequenceToGather())
    assert_equivalent(before, after, [random_feeds(before)])
