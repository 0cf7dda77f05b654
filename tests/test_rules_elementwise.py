"""Rules for elementwise operators and activations that the backend refuses or computes wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.backend.failures import BackendError
from hexport.rewrite.faults.exp_in_range import ExpInRange
from hexport.rewrite.faults.mish_to_softplus import MishToSoftplus
from hexport.rewrite.faults.softplus_in_range import SoftplusInRange
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.acos_to_series import AcosToSeries
from hexport.rewrite.support.acosh_to_log import AcoshToLog
from hexport.rewrite.support.asin_to_series import AsinToSeries
from hexport.rewrite.support.asinh_to_log import AsinhToLog
from hexport.rewrite.support.atanh_to_log import AtanhToLog
from hexport.rewrite.support.celu_to_elu import CeluToElu
from hexport.rewrite.support.cosh_to_exp import CoshToExp
from hexport.rewrite.support.dropout_to_identity import DropoutToIdentity
from hexport.rewrite.support.erf_to_tanh import ErfToTanh
from hexport.rewrite.support.hardmax_to_argmax import HardmaxToArgmax
from hexport.rewrite.support.shrink_to_where import ShrinkToWhere
from hexport.rewrite.support.sinh_to_exp import SinhToExp
from hexport.rewrite.support.softsign_to_div import SoftsignToDiv
from rule_checks import assert_equivalent, cpu, cpu_ops, htp_sqnr, random_feeds, rewritten, verdict
from rule_outcomes import op_types, reasons

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


@dataclass(frozen=True)
class Function:
    """One operator of one float input, and the inputs it is tried on."""

    op: str
    rule: type[Rule]
    low: float = -8.0
    high: float = 8.0
    attributes: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-4
    """What the formula itself may differ by; fp16 has steps of 5e-4 to 1e-3."""
    opset: int = 17

    def model(self, shape: tuple[int, ...] = (4, 64), opset: int = 0) -> onnx.ModelProto:
        return small.model(
            [helper.make_node(self.op, ["x"], ["y"], name="n", **self.attributes)],
            [small.value("x", list(shape))],
            [small.value("y", list(shape))],
            opset=opset or self.opset,
        )

    def feeds(self, proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
        return random_feeds(proto, seed, self.low, self.high)


FUNCTIONS = [
    Function("Erf", ErfToTanh),
    Function("Softsign", SoftsignToDiv),
    Function("Celu", CeluToElu),
    Function("Celu", CeluToElu, attributes={"alpha": 2.5}),
    Function("Shrink", ShrinkToWhere, attributes={"lambd": 1.5, "bias": 1.5}),
    Function("Shrink", ShrinkToWhere, attributes={"lambd": 1.0, "bias": 0.0}),
    Function("Shrink", ShrinkToWhere, attributes={"lambd": 0.5, "bias": 0.25}),
    Function("Sinh", SinhToExp),
    Function("Cosh", CoshToExp),
    Function("Asinh", AsinhToLog, -500, 500),
    Function("Acosh", AcoshToLog, 1, 30),
    Function("Atanh", AtanhToLog, -0.98, 0.98),
    Function("Asin", AsinToSeries, -1, 1),
    Function("Acos", AcosToSeries, -1, 1),
    Function("Hardmax", HardmaxToArgmax),
]


def label(function: Function) -> str:
    return "-".join([function.op, *map(str, function.attributes.values())])


every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=label)


@every_function
@pytest.mark.parametrize("opset", [12, 17, 23])
def test_equivalent(function: Function, opset: int) -> None:
    before = function.model(opset=opset)
    after, done = rewritten(before, function.rule())
    assert [(a.rule, a.nodes) for a in done] == [(function.rule.__name__, ("n",))]
    assert function.op not in op_types(after)
    feeds = [function.feeds(before, seed) for seed in range(3)]
    assert_equivalent(before, after, feeds, rtol=function.rtol, atol=1e-5)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f.op == "Shrink"], ids=label)
@pytest.mark.parametrize("opset", [9, 10, 11])
def test_shrink_where_clip_has_its_bounds_as_attributes(function: Function, opset: int) -> None:
    before = function.model(opset=opset)
    after, done = rewritten(before, ShrinkToWhere())
    assert done
    assert ("Clip" in op_types(after)) == (opset >= 11 and len(set(function.attributes.values())) == 1)
    assert_equivalent(before, after, [function.feeds(before, seed) for seed in range(3)])


def test_soft_shrink_of_opset_9_on_the_htp() -> None:
    function = Function("Shrink", ShrinkToWhere, attributes={"lambd": 1.5, "bias": 1.5}, opset=9)
    before = function.model()
    after, _ = rewritten(before, ShrinkToWhere())
    assert cpu_ops(before) == {"Shrink"}
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [function.feeds(before)]) > 50


@given(st.sampled_from(FUNCTIONS), SHAPES)
@settings(max_examples=15, deadline=None)
def test_any_shape(function: Function, shape: tuple[int, ...]) -> None:
    before = function.model(shape)
    after, done = rewritten(before, function.rule())
    assert done
    assert_equivalent(before, after, [function.feeds(before)], rtol=function.rtol, atol=1e-5)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f.op != "Hardmax"], ids=label)
def test_small_inputs_keep_their_digits(function: Function) -> None:
    before = function.model()
    after, _ = rewritten(before, function.rule())
    offset = 1.0 if function.op == "Acosh" else 0.0
    x = offset + np.geomspace(1e-4, 0.9, 256, dtype=np.float32).reshape(4, 64)
    expected, got = cpu(before, {"x": x})[0], cpu(after, {"x": x})[0]
    np.testing.assert_allclose(got, expected, rtol=3e-4, atol=1e-7)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f.op != "Celu"], ids=label)  # float32 only
def test_float16_models_stay_float16(function: Function) -> None:
    proto = small.model(
        [helper.make_node(function.op, ["x"], ["y"], **function.attributes)],
        [small.value("x", [3, 4], TensorProto.FLOAT16)],
        [small.value("y", [3, 4], TensorProto.FLOAT16)],
    )
    after, done = rewritten(proto, function.rule())
    assert done
    (result,) = cpu(after, function.feeds(proto))
    assert result.dtype == np.float16


def side_by_side(functions: list[Function]) -> onnx.ModelProto:
    """Each function on an input of its own, in one model: one question to the backend answers for all."""
    return small.model(
        [
            helper.make_node(f.op, [f"x{i}"], [f"y{i}"], name=f"n{i}", **f.attributes)
            for i, f in enumerate(functions)
        ],
        [small.value(f"x{i}", [4, 64]) for i in range(len(functions))],
        [small.value(f"y{i}", [4, 64]) for i in range(len(functions))],
    )


def test_the_backend_refuses_every_one_before_and_none_after() -> None:
    before = side_by_side(FUNCTIONS)
    assert cpu_ops(before) == {function.op for function in FUNCTIONS}
    after, done = rewritten(before, *{function.rule: function.rule() for function in FUNCTIONS}.values())
    assert sum(len(application.nodes) for application in done) == len(FUNCTIONS)
    assert not cpu_ops(after)
    # Numbers that fp16 holds exactly, so that what is measured is the formula and not the input's rounding.
    feeds = {f"x{i}": f.feeds(f.model(), i)["x"].astype(np.float16) for i, f in enumerate(FUNCTIONS)}
    # The worst of all the functions.
    assert htp_sqnr(before, after, [{name: x.astype(np.float32) for name, x in feeds.items()}]) > 50


def test_erf_and_softsign_at_the_end_of_the_range_on_the_htp() -> None:
    ends = np.array([[-6e4, -2e4, -300, -4, 4, 300, 2e4, 6e4]], np.float32)
    functions = [
        Function("Erf", ErfToTanh),
        Function("Softsign", SoftsignToDiv),
        Function("Asinh", AsinhToLog),
    ]
    for function in functions:
        before = function.model(ends.shape)
        after, _ = rewritten(before, function.rule())
        assert htp_sqnr(before, after, [{"x": ends}]) > 50


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax_of_old_opsets_takes_a_matrix(axis: int) -> None:
    function = Function("Hardmax", HardmaxToArgmax, attributes={"axis": axis}, opset=11)
    before = function.model((2, 3, 4))
    after, done = rewritten(before, HardmaxToArgmax())
    assert done
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


def test_hardmax_marks_the_first_of_equals() -> None:
    before = Function("Hardmax", HardmaxToArgmax, attributes={"axis": 0}).model((3, 2))
    after, _ = rewritten(before, HardmaxToArgmax())
    assert_equivalent(before, after, [{"x": np.ones((3, 2), np.float32)}])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (Function("Celu", CeluToElu, attributes={"alpha": -1.0}), "alpha is not positive"),
        (Function("Shrink", ShrinkToWhere, attributes={"lambd": -1.0}), "lambd is negative"),
    ],
    ids=["celu", "shrink"],
)
def test_says_why_not_by_attribute(function: Function, reason: str) -> None:
    assert reason in reasons(function.model(), function.rule())


def test_says_why_not_by_type() -> None:
    doubles = small.model(
        [helper.make_node("Erf", ["x"], ["y"])],
        [small.value("x", [3], TensorProto.DOUBLE)],
        [small.value("y", [3], TensorProto.DOUBLE)],
    )
    assert "float32 or float16" in reasons(doubles, ErfToTanh())


# Exponentials that wrap around

WRAPPING = [
    Function("Exp", ExpInRange, -88, 11),
    Function("Softplus", SoftplusInRange, -2000, 100),
    Function("Mish", MishToSoftplus, -2000, 100, opset=18),
]


@pytest.mark.parametrize("function", WRAPPING, ids=label)
def test_clipped_input(function: Function) -> None:
    before = function.model()
    rule = function.rule()
    after, done = rewritten(before, rule)
    assert [application.nodes for application in done] == [("n",)]
    assert not rule.missed
    assert_equivalent(before, after, [function.feeds(before, seed) for seed in range(3)])
    _, done = rewritten(after, function.rule())
    assert not done


@pytest.mark.parametrize("function", WRAPPING, ids=label)
def test_clipped_input_on_the_htp(function: Function) -> None:
    x = np.array([[-6e4, -2000, -300, -100, -90, -1, 0, 1, 4, 10]], np.float32)
    before = function.model(x.shape)
    after, _ = rewritten(before, function.rule())
    assert not cpu_ops(before)
    assert htp_sqnr(before, before, [{"x": x}]) < 10
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [{"x": x}]) > 45


def test_mish_behind_another_operator() -> None:
    before = small.model(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mish", ["r"], ["y"], name="n")],
        [small.value("x", [4, 8])],
        [small.value("y", [4, 8])],
        opset=18,
    )
    after, _ = rewritten(before, MishToSoftplus())
    with pytest.raises(BackendError):
        verdict(before)
    assert len(verdict(after).partitions) == 1
    assert htp_sqnr(before, after, [random_feeds(before)]) > 40


# Dropout


def dropout_model(training: bool | None = None, mask: bool = False) -> onnx.ModelProto:
    inputs = ["r"] if training is None else ["r", "ratio", "training"]
    constants = [
        small.constant("ratio", np.array(0.5, np.float32)),
        small.constant("training", np.array(bool(training))),
    ]
    outputs = [small.value("y", [3, 4])] + [small.value("mask", [3, 4], TensorProto.BOOL)] * mask
    return small.model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Dropout", inputs, ["y", "mask"][: 1 + mask], name="n"),
        ],
        [small.value("x", [3, 4])],
        outputs,
        [] if training is None else constants,
    )


@pytest.mark.parametrize("training", [None, False])
def test_dropout_at_the_end(training: bool | None) -> None:
    before = dropout_model(training)
    after, done = rewritten(before, DropoutToIdentity())
    assert done
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])
    assert cpu_ops(before) == {"Dropout"}
    assert not cpu_ops(after)


def test_dropout_says_why_not() -> None:
    assert "training_mode" in reasons(dropout_model(training=True), DropoutToIdentity())


def test_dropout_whose_mask_is_used_stays() -> None:
    after, done = rewritten(dropout_model(mask=True), DropoutToIdentity())
    assert not done
    assert "Dropout" in op_types(after)
