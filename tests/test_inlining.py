"""Model-local functions, written out by hexport as ONNX Runtime does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import small_models as small
from hexport.model import NotOnnx, read
from hexport.model import inlining as module
from hexport.model.staging import stage


def results(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def written_out(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What hexport makes of it, after it gave the same as ONNX Runtime's own inlining."""
    model = read(small.save(proto, folder / "m.onnx"))
    shapes = {
        name: tuple(d for d in t.shape or () if isinstance(d, int)) for name, t in model.graph.inputs.items()
    }
    staged = stage(model, shapes, folder).model
    rng = np.random.default_rng(0)
    feeds = {
        name: np.array(True)
        if model.graph.inputs[name].dtype == "bool"
        else rng.normal(size=shape).astype("f4")
        for name, shape in shapes.items()
    }
    for expected, got in zip(results(model.path, feeds), results(staged, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)
    after = onnx.load(staged)
    onnx.checker.check_model(after, full_check=True)
    return after


def function(name: str, nodes: list[onnx.NodeProto], **more: list[str]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function(
        "local",
        name,
        more.get("inputs", ["a"]),
        more.get("outputs", ["b"]),
        nodes,
        opsets,
        more.get("attributes"),
    )


def calling(
    nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto, inputs: tuple[str, ...] = ("x",)
) -> onnx.ModelProto:
    proto = small.model(nodes, [small.value(name, [2, 3]) for name in inputs], [small.value("y", [2, 3])])
    proto.opset_import.append(helper.make_opsetid("local", 1))
    proto.functions.extend(functions)
    return proto


def call(name: str, inputs: list[str], outputs: list[str], **attributes: float) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, domain="local", **attributes)


def test_functions_in_functions_with_attributes(tmp_path: Path) -> None:
    after = written_out(small.with_functions(), tmp_path)
    assert not after.functions
    assert [node.name for node in after.graph.node] == [
        "first/leak/leaky",
        "first/erf",
        "second/leak/leaky",
        "second/erf",
    ]
    slopes = [a.f for node in after.graph.node for a in node.attribute if a.name == "alpha"]
    assert slopes == [0.5, 0.25]


def test_an_attribute_that_nobody_gives_is_left_to_the_operator(tmp_path: Path) -> None:
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    after = written_out(
        calling([call("Leak", ["x"], ["y"])], function("Leak", [leaky], attributes=["slope"])), tmp_path
    )
    assert not after.graph.node[0].attribute


def test_names_that_the_graph_has_already(tmp_path: Path) -> None:
    twice = function(
        "Twice", [helper.make_node("Add", ["a", "a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])]
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["Twice/t"]),
        call("Twice", ["Twice/t"], ["t"]),
        call("Twice", ["t"], ["y"]),
    ]
    after = written_out(calling(nodes, twice), tmp_path)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Add", "Neg", "Add", "Neg"]


def test_an_input_left_out(tmp_path: Path) -> None:
    clip = helper.make_node("Clip", ["a", "low", "high"], ["b"])
    bound = function("Bound", [clip], inputs=["a", "low", "high"])
    after = written_out(calling([call("Bound", ["x"], ["y"])], bound), tmp_path)
    assert list(after.graph.node[0].input) == ["x", "", ""]


def test_a_body_inside_a_function(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["hidden"], ["result"])
        return helper.make_graph([node], name, [], [small.value("result", [2, 3])])

    nodes = [
        helper.make_node("Neg", ["a"], ["hidden"]),
        helper.make_node(
            "If", ["c"], ["b"], then_branch=branch("then", "Abs"), else_branch=branch("else", "Exp")
        ),
    ]
    proto = calling([call("Pick", ["x", "c"], ["y"])], function("Pick", nodes, inputs=["a", "c"]))
    proto.graph.input.append(small.value("c", [], onnx.TensorProto.BOOL))
    written_out(proto, tmp_path)


def test_a_call_inside_a_body(tmp_path: Path) -> None:
    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [small.value(node.output[0], [2, 3])])

    then, other = (
        branch("then", call("Twice", ["x"], ["t"])),
        branch("else", helper.make_node("Exp", ["x"], ["e"])),
    )
    choose = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    proto = calling([choose], function("Twice", [helper.make_node("Add", ["a", "a"], ["b"])]))
    proto.graph.input.append(small.value("c", [], onnx.TensorProto.BOOL))
    assert not written_out(proto, tmp_path).functions


def test_functions_without_an_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = function("Again", [call("Again", ["a"], ["b"])])
    path = small.save(calling([call("Again", ["x"], ["y"])], again), tmp_path / "m.onnx")
    with pytest.raises(NotOnnx, match="local::Again calls itself"):
        read(path)
    levels = [function("F0", [helper.make_node("Neg", ["a"], ["b"])])]
    for i in range(1, 12):
        nodes = [call(f"F{i - 1}", ["a"], ["t"]), call(f"F{i - 1}", ["t"], ["b"])]
        levels.append(function(f"F{i}", nodes))
    path = small.save(calling([call("F11", ["x"], ["y"])], *levels), tmp_path / "m.onnx")
    monkeypatch.setattr(module, "_MOST_NODES", 1000)
    with pytest.raises(NotOnnx, match="never come to an end"):
        read(path)
