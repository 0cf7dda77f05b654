"""Rules for GELU: written out with Erf in any order, or as ONNX Runtime's own operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models as small
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.bias_gelu_to_gelu import BiasGeluToGelu
from hexport.rewrite.support.erf_to_tanh import ErfToTanh
from hexport.rewrite.support.fast_gelu_to_tanh import FastGeluToTanh
from hexport.rewrite.support.gelu_from_erf import GeluFromErf
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten
from rule_outcomes import op_types

MICROSOFT = "com.microsoft"


def gelu_model(
    nodes: list[onnx.NodeProto], opset: int = 17, outputs: tuple[str, ...] = ("y",), root_two: float = 2**0.5
) -> onnx.ModelProto:
    constants = {"root": root_two, "inverse": 1 / root_two, "half": 0.5, "one": 1.0, "two": 2.0}
    used = {name for node in nodes for name in node.input}
    return small.model(
        nodes,
        [small.value("x", [2, 8, 16])],
        [small.value(name, [2, 8, 16]) for name in outputs],
        [
            small.constant(name, np.array(value, np.float32))
            for name, value in constants.items()
            if name in used
        ],
        opset,
    )


def chain(*steps: str) -> list[onnx.NodeProto]:
    """Nodes from lines such as ``d = Div x root``."""
    nodes = []
    for step in steps:
        name, _, call = step.partition(" = ")
        op, *inputs = call.split()
        nodes.append(helper.make_node(op, inputs, [name], name=name))
    return nodes


ERF = ("d = Div x root", "e = Erf d", "a = Add e one")
FUSED_BY_THE_PROVIDER = [
    (*ERF, "m = Mul x a", "y = Mul m half"),
    (*ERF, "m = Mul x half", "y = Mul m a"),
    (*ERF, "m = Mul half a", "y = Mul m x"),
    ("d = Mul x inverse", "e = Erf d", "h = Mul e half", "a = Add half h", "y = Mul a x"),
]
LEFT_BY_THE_PROVIDER = [
    (*ERF, "m = Div x two", "y = Mul m a"),
    (*ERF, "m = Mul a x", "y = Div m two"),
    ("d = Mul inverse x", "e = Erf d", "a = Add one e", "m = Mul x a", "y = Mul m half"),
    ("n = Neg x", "d = Div n root", "e = Erf d", "a = Sub one e", "m = Mul x a", "y = Mul m half"),
]


@pytest.mark.parametrize("steps", [*FUSED_BY_THE_PROVIDER, *LEFT_BY_THE_PROVIDER], ids=" ; ".join)
@pytest.mark.parametrize("opset", [13, 20])
def test_gelu_in_any_order(steps: tuple[str, ...], opset: int) -> None:
    before = gelu_model(chain(*steps), opset)
    after, done = rewritten(before, ErfToTanh(), GeluFromErf())
    assert [application.rule for application in done] == ["GeluFromErf"]
    (gelu,) = [node for node in after.graph.node if node.op_type == "Gelu"]
    assert gelu.domain == ("" if opset == 20 else MICROSOFT)
    assert "Erf" not in op_types(after)
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


def test_gelu_with_few_digits_of_the_root() -> None:
    before = gelu_model(chain(*FUSED_BY_THE_PROVIDER[0]), root_two=1.414)
    after, _ = rewritten(before, GeluFromErf())
    assert "Gelu" in op_types(after)
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-3, atol=3e-4)


def test_gelu_whose_erf_is_used_elsewhere_too() -> None:
    before = gelu_model(chain(*FUSED_BY_THE_PROVIDER[0]), outputs=("y", "e"))
    after, done = rewritten(before, ErfToTanh(), GeluFromErf())
    assert {application.rule for application in done} == {"ErfToTanh", "GeluFromErf"}
    assert "Erf" not in op_types(after)
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-4)


@pytest.mark.parametrize(
    "steps",
    [
        ("d = Div x two", "e = Erf d", "a = Add e one", "m = Mul x a", "y = Mul m half"),
        ("d = Div x root", "e = Erf d", "a = Add e two", "m = Mul x a", "y = Mul m half"),
        ("d = Div x root", "e = Erf d", "a = Sub e one", "m = Mul x a", "y = Mul m half"),
        ("d = Div x root", "e = Erf d", "a = Add e one", "m = Mul e a", "y = Mul m half"),
    ],
    ids=" ; ".join,
)
def test_no_gelu(steps: tuple[str, ...]) -> None:
    before = gelu_model(chain(*steps))
    after, done = rewritten(before, ErfToTanh(), GeluFromErf())
    assert [application.rule for application in done] == ["ErfToTanh"]
    # The error of Erf is relative; 1 − erf is compared with the size of x.
    assert_equivalent(before, after, [random_feeds(before)], rtol=1e-4, atol=3e-4)


def test_gelu_on_the_backend() -> None:
    assert not cpu_ops(gelu_model(chain(*FUSED_BY_THE_PROVIDER[0])))
    for steps in LEFT_BY_THE_PROVIDER[:2]:
        before = gelu_model(chain(*steps))
        after, _ = rewritten(before, GeluFromErf())
        assert cpu_ops(before) == {"Erf"}
        assert not cpu_ops(after)
        assert htp_sqnr(before, after, [random_feeds(before)]) > 50


def microsoft(op: str, inputs: list[str], opset: int = 17) -> onnx.ModelProto:
    bias = np.linspace(-1, 1, 16, dtype=np.float32)
    proto = small.model(
        [helper.make_node(op, inputs, ["y"], name="n", domain=MICROSOFT)],
        [small.value("x", [2, 8, 16])],
        [small.value("y", [2, 8, 16])],
        [small.constant("b", bias)] if "b" in inputs else [],
        opset,
    )
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return proto


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        (microsoft("BiasGelu", ["x", "b"]), BiasGeluToGelu),
        (microsoft("FastGelu", ["x"]), FastGeluToTanh),
        (microsoft("FastGelu", ["x", "b"]), FastGeluToTanh),
        (microsoft("FastGelu", ["x", "b"], opset=20), FastGeluToTanh),
    ],
    ids=["BiasGelu", "FastGelu", "FastGelu with bias", "FastGelu opset 20"],
)
def test_gelus_of_onnx_runtime(before: onnx.ModelProto, rule: type[Rule]) -> None:
    op = before.graph.node[0].op_type
    after, _ = rewritten(before, rule())
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], atol=1e-5)
    assert cpu_ops(before) == {op}
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50
