"""What nothing reads goes, and only that; what has its shapes is not inferred again."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.rewrite import applying
from hexport.rewrite.applying import infer_missing_shapes
from hexport.rewrite.unused import remove_unused


def _model() -> ir.Model:
    """A chain that leads nowhere, a constant that only a branch reads, and one that nobody does."""
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "inside"], ["t"])], "then", [], [small.value("t", [4])]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [small.value("e", [4])])
    one = np.ones(4, np.float32)
    return ir.from_proto(
        small.model(
            [
                helper.make_node("Mul", ["x", "lost"], ["a"]),
                helper.make_node("Relu", ["a"], ["b"]),
                helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
            ],
            [small.value("x", [4])],
            [small.value("y", [4])],
            [
                small.constant("inside", one),
                small.constant("lost", one),
                small.constant("idle", one),
                small.constant("yes", np.array(True)),
            ],
        )
    )


def test_chains_and_constants_go() -> None:
    model = _model()
    remove_unused(model.graph)
    assert [node.op_type for node in model.graph] == ["If"]
    assert set(model.graph.initializers) == {"inside", "yes"}
    onnx.checker.check_model(ir.to_proto(model))


def test_shapes_are_inferred_where_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ir.Model] = []
    infer = applying.infer_shapes
    monkeypatch.setattr(applying, "infer_shapes", lambda model: (calls.append(model), infer(model)))
    model = _model()
    infer_missing_shapes(model)
    infer_missing_shapes(model)
    assert len(calls) == 1
    assert all(value.shape is not None for node in model.graph.all_nodes() for value in node.outputs)
