"""Plans: which nodes are in integers, which are not and why, and what goes along with its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport.quantization.encoding import QType
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, plan_for, settle_moving
from hexport.quantization.roles import Role, kind_of, role_of, weight_of
from hexport.rewrite.applying import infer_shapes
from quantised_graphs import ARCH, cnn, normal, transformer

V69 = 69
make = helper.make_node


def load(proto: onnx.ModelProto) -> ir.Model:
    model = ir.from_proto(proto)
    infer_shapes(model)
    return model


def planned(proto: onnx.ModelProto, scheme: str, arch: int = ARCH) -> Plan:
    return plan_for(load(proto), SCHEMES[scheme], arch)


def chain(*nodes: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    """x[1,4,8,8] → nodes → y."""
    return small.model(
        list(nodes),
        [small.value("x", [1, 4, 8, 8])],
        [small.value("y", None)],
        [small.constant(name, array) for name, array in constants.items()],
    )


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "fp16"])
@pytest.mark.parametrize("model", [cnn(), transformer()], ids=["cnn", "transformer"])
def test_every_node_has_the_scheme(scheme: str, model: onnx.ModelProto) -> None:
    plan = planned(model, scheme)
    wanted = SCHEMES[scheme]
    loaded = load(model)
    assert not plan.reasons
    for node in loaded.graph:
        weighted = weight_of(node) is not None
        expected = wanted if weighted else Precision(wanted.activation)
        if node.name in ("conv", "depthwise", "gemm"):
            # The NPU takes no blocks of larger convolutions, and none that are not whole.
            expected = replace(expected, block=0)
        assert plan.of(node) == expected, node.name


def test_the_float_scheme_leaves_everything() -> None:
    assert set(planned(cnn(), "fp16").precisions.values()) == {FLOAT}


def test_what_has_no_integer_form_stays_float_with_the_reason() -> None:
    plan = planned(small.cut_by_erf(), "8a8w")
    assert plan.precisions["the_erf"] == FLOAT
    assert "no integer Erf" in plan.reasons["the_erf"]
    assert plan.precisions["first"] == SCHEMES["8a8w"]


def test_types_that_an_operator_gets_wrong_are_not_used() -> None:
    proto = chain(make("CumSum", ["x", "axis"], ["y"], name="sum"), axis=np.array(1))
    assert planned(proto, "16a8w").precisions["sum"] == Precision(QType.U16)
    plan = planned(proto, "8a8w")
    assert plan.precisions["sum"] == FLOAT
    assert "u8" in plan.reasons["sum"]


def test_weights_that_a_generation_has_not() -> None:
    assert planned(cnn(), "16a16w").precisions["conv"].weight is QType.S16
    plan = planned(cnn(), "16a16w", V69)
    assert plan.precisions["conv"] == FLOAT
    assert "v69" in plan.reasons["conv"]


def test_integer_arithmetic_of_the_model_itself_is_left_alone() -> None:
    nodes = [
        make("Add", ["n", "n"], ["twice"], name="count"),
        make("Cast", ["twice"], ["f"], name="cast", to=TensorProto.FLOAT),
        make("Add", ["x", "f"], ["y"], name="real"),
    ]
    inputs = [small.value("x", [4]), small.value("n", [4], TensorProto.INT64)]
    model = load(small.model(nodes, inputs, [small.value("y", [4])]))
    plan = plan_for(model, SCHEMES["8a8w"], ARCH)
    assert plan.precisions["real"] == Precision(QType.U8)
    assert "count" not in plan.precisions
    assert plan.precisions["cast"] == FLOAT


def test_operators_of_other_domains_are_float() -> None:
    node = make("Relu", ["x"], ["y"], name="theirs", domain="their.own")
    assert kind_of(load(chain(node)).graph[0]) is None


MOVES = chain(
    make("Conv", ["x", "w"], ["a"], name="conv"),
    make("Transpose", ["a"], ["b"], name="turn", perm=[0, 2, 3, 1]),
    make("Reshape", ["b", "shape"], ["c"], name="reshape"),
    make("Relu", ["c"], ["y"], name="relu"),
    w=normal(4, 4, 1, 1),
    shape=np.array([1, -1]),
)


def test_what_moves_numbers_goes_with_what_made_them() -> None:
    model = load(MOVES)
    plan = plan_for(model, SCHEMES["16a8w"], ARCH)
    assert {plan.precisions[n] for n in ("turn", "reshape")} == {Precision(QType.U16)}
    plan.set("conv", FLOAT, "for a test")
    settle_moving(model, plan)
    assert {plan.precisions[n] for n in ("turn", "reshape")} == {FLOAT}
    assert plan.precisions["relu"] == Precision(QType.U16)


def test_what_moves_an_input_goes_with_its_readers() -> None:
    model = load(
        chain(
            make("Transpose", ["x"], ["a"], name="turn", perm=[0, 2, 3, 1]),
            make("Flatten", ["a"], ["b"], name="flatten"),
            make("Relu", ["b"], ["y"], name="relu"),
        )
    )
    plan = plan_for(model, SCHEMES["8a8w"], ARCH)
    plan.set("relu", FLOAT, "for a test")
    settle_moving(model, plan)
    assert {plan.precisions[n] for n in ("turn", "flatten")} == {FLOAT}
    plan.set("relu", Precision(QType.U16), "for a test")
    settle_moving(model, plan)
    assert {plan.precisions[n] for n in ("turn", "flatten")} == {Precision(QType.U16)}


def test_a_copy_of_a_plan_is_its_own() -> None:
    plan = planned(cnn(), "8a8w")
    other = plan.copy()
    other.set("conv", FLOAT, "for a test")
    assert plan.precisions["conv"] == SCHEMES["8a8w"]
    assert not plan.reasons


ROLES = {
    "Conv": (["x", "w", "b"], [Role.DATA, Role.WEIGHT, Role.BIAS]),
    "MatMul": (["x", "x"], [Role.DATA, Role.RIGHT]),
    "LayerNormalization": (["x", "g", "b"], [Role.DATA, Role.GAIN, Role.BIAS]),
    "Clip": (["x", "low", "low"], [Role.DATA, Role.PARAMETER, Role.PARAMETER]),
    "Reshape": (["x", "shape"], [Role.DATA, Role.PARAMETER]),
    "Concat": (["x", "g"], [Role.DATA, Role.DATA]),
    "Where": (["condition", "x", "g"], [Role.PARAMETER, Role.DATA, Role.DATA]),
    "Gather": (["x", "shape"], [Role.DATA, Role.PARAMETER]),
    "Add": (["x", "g"], [Role.DATA, Role.DATA]),
}


@pytest.mark.parametrize("op", ROLES)
def test_what_an_input_is_to_its_operator(op: str) -> None:
    inputs, roles = ROLES[op]
    constants = {
        "w": normal(4, 4, 1, 1), "b": normal(4), "g": normal(8), "low": np.array(0, np.float32),
        "shape": np.array([1, 256]), "condition": np.array([True]),
    }  # fmt: skip
    attributes: dict[str, Any] = {"axis": 0} if op == "Concat" else {}
    proto = chain(
        make(op, inputs, ["y"], **attributes), **{n: a for n, a in constants.items() if n in inputs}
    )
    node = ir.from_proto(proto).graph[0]
    assert [role_of(node, index) for index in range(len(inputs))] == roles


def test_the_names_of_schemes_are_those_of_their_precisions() -> None:
    assert {str(precision): precision for precision in SCHEMES.values()} == dict(SCHEMES)
    assert str(Precision(QType.U16)) == "16a"
