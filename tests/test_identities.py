"""Identities go; what a branch gives out stays its own."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

import small_models as small
from hexport.rewrite.exposing import exposing
from hexport.rewrite.identities import remove_identities
from rule_checks import cpu


def test_a_branch_may_give_out_a_tensor_from_around_it() -> None:
    then = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Identity", ["n"], ["p"])]
    negated = helper.make_graph(then, "then", [], [small.value("p", [4])])
    same = [helper.make_node("Identity", ["a"], ["q"])]
    as_it_is = helper.make_graph(same, "else", [], [small.value("q", [4])])
    proto = small.model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Identity", ["r"], ["a"]),
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Greater", ["m", "limit"], ["large"]),
            helper.make_node("If", ["large"], ["y"], then_branch=negated, else_branch=as_it_is),
        ],
        [small.value("x", [4])],
        [small.value("y", [4])],
        [small.constant("limit", np.array(10, np.float32))],
    )
    model = ir.from_proto(proto)
    remove_identities(model)
    remove_identities(model)
    (left,) = [node for node in model.graph.all_nodes() if node.op_type == "Identity"]
    assert [value.name for value in left.outputs] == ["q"]
    onnx.checker.check_model(ir.to_proto(model))
    # A tensor that the branch gives out may be an output of the model, too.
    feeds = {"x": np.array([-1, 2, 3, 4], np.float32)}
    for shown in (model, exposing(model, ["r"])):
        np.testing.assert_array_equal(cpu(ir.to_proto(shown), feeds)[0], np.array([0, 2, 3, 4], np.float32))


def test_outputs_keep_their_names() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Identity", ["r"], ["y"]),
        helper.make_node("Identity", ["r"], ["z"]),
        helper.make_node("Identity", ["x"], ["w"]),
    ]
    outputs = [small.value(name, [4]) for name in "yzw"]
    model = ir.from_proto(small.model(nodes, [small.value("x", [4])], outputs))
    remove_identities(model)
    assert [value.name for value in model.graph.outputs] == ["y", "z", "w"]
    # One name serves one output, and an input cannot be called otherwise.
    assert [node.op_type for node in model.graph] == ["Relu", "Identity", "Identity"]
    x = np.array([-1, 2, 3, 4], np.float32)
    for got, wanted in zip(cpu(ir.to_proto(model), {"x": x}), (x.clip(0), x.clip(0), x), strict=True):
        np.testing.assert_array_equal(got, wanted)
