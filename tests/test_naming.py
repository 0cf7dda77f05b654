"""Names of what rules make: the same at every size of a model, whatever else is made before it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import helper

import small_models as small
from hexport.rewrite.naming import name_nodes, name_what_is_new, names_in


def chain(*, longer: bool) -> ir.Model:
    """x -> Relu -> Neg -> Abs -> y; ``longer``: with a node more in front."""
    nodes = [helper.make_node("Sin", ["x"], ["s"], name="sin")] if longer else []
    nodes += [
        helper.make_node("Relu", ["s" if longer else "x"], ["r"], name="relu"),
        helper.make_node("Neg", ["r"], ["n"], name="neg"),
        helper.make_node("Abs", ["n"], ["y"], name="abs"),
    ]
    proto = small.model(nodes, [small.value("x", [1, 2])], [small.value("y", [1, 2])])
    return ir.from_proto(proto)


def with_two_for_the_relu(model: ir.Model) -> ir.Model:
    """As a rule replaces it: by nodes that onnx-ir counts."""
    graph = model.graph
    relu = next(node for node in graph if node.op_type == "Relu")
    low = ir.Value(name=None, const_value=ir.tensor(np.zeros(1, np.float32), name="low"))
    low.name = "low"
    graph.register_initializer(low)
    inner = ir.node("Max", [relu.inputs[0], low])
    outer = ir.node("Identity", [inner.outputs[0]])
    graph.insert_before(relu, [inner, outer])
    relu.outputs[0].replace_all_uses_with(outer.outputs[0])
    graph.remove(relu, safe=True)
    return model


def test_a_node_more_before_it_changes_no_name() -> None:
    named = []
    for longer in (False, True):
        model = chain(longer=longer)
        known = names_in(model)
        name_what_is_new(with_two_for_the_relu(model), known)
        named.append({node.op_type: (node.name, node.outputs[0].name) for node in model.graph})
    assert named[0]["Max"] == ("Max_Identity_neg_in0_in0", "Identity_neg_in0_in0")
    assert named[0]["Neg"] == ("neg", "n")
    assert named[0] == {op: names for op, names in named[1].items() if op != "Sin"}


def test_long_chains_have_short_names_and_no_two_the_same() -> None:
    tensor = ["x", *(f"val_{i}" for i in range(1, 300)), "y"]
    nodes = [helper.make_node("Neg", [tensor[i]], [tensor[i + 1]], name=f"node_Neg_{i}") for i in range(300)]
    model = ir.from_proto(small.model(nodes, [small.value("x", [1])], [small.value("y", [1])]))
    name_what_is_new(model, frozenset({"x", "y"}))
    names = [str(node.name) for node in model.graph]
    tensors = [str(node.outputs[0].name) for node in model.graph]
    assert len({*names, *tensors}) == 600
    assert max(map(len, [*names, *tensors])) <= 34
    assert tensors[-1] == "y"


def test_every_node_has_a_name_of_its_own() -> None:
    nodes = [helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"], name="" if i else "neg") for i in range(3)]
    nodes += [helper.make_node("Neg", ["t3"], ["t4"], name="neg")]
    model = ir.from_proto(small.model(nodes, [small.value("t0", [1])], [small.value("t4", [1])]))
    for node in list(model.graph)[1:3]:
        node.name = ""
    name_nodes(model)
    assert [node.name for node in model.graph] == ["neg", "Neg_t2", "Neg_t3", "neg.2"]


def test_names_that_a_rule_gave_are_left() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["loop/0/a"], name="loop/0/neg"),
        helper.make_node("Abs", ["loop/0/a"], ["y"], name="abs"),
    ]
    model = ir.from_proto(small.model(nodes, [small.value("x", [1])], [small.value("y", [1])]))
    before = names_in(model)
    name_what_is_new(model, frozenset({"x", "y"}))
    assert names_in(model) == before
