"""Rescue: what the NPU gets wrong or fails on is found, pinned to the CPU, and only that."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport import facts
from hexport.preparation.culprits import Blame, find_suspects
from hexport.preparation.nearness import nearness
from hexport.preparation.pin_search import Score
from hexport.preparation.pipeline import stand
from hexport.preparation.rescue import rescue, rescue_model
from hexport.preparation.tensors import compute_tensors
from hexport.preparation.trials import Trials
from hexport.preparation.verb import prepare
from hexport.preparation.workbench import Workbench
from hexport.preparation.wrong_runs import _turn
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.pinning import PIN, pin
from hexport.toolchain import Limits
from rule_checks import assert_equivalent, cpu, cpu_ops

TARGET = facts.find_target("SM8650")
FOREVER = math.inf
RNG = np.random.default_rng(0)


def between_others(
    op: str, *others: str, shape: list[Any], out: list[Any], opset: int = 9, **attributes: Any
) -> onnx.ModelProto:
    """Relu → the operator → Neg; ``others`` are the names of further inputs of 4 numbers."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op, ["a", *others], ["b"], name="culprit", **attributes),
        helper.make_node("Neg", ["b"], ["y"], name="after"),
    ]
    inputs = [small.value("x", shape), *(small.value(name, [4]) for name in others)]
    made = small.model(nodes, inputs, [small.value("y", out)], opset=opset)
    made.graph.value_info.append(small.value("b", out))
    return made


def failing() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The compiler fails on an Upsample whose scale is an input."""
    proto = between_others("Upsample", "scales", shape=[1, 2, 4, 4], out=[1, 2, 8, 8])
    x = RNG.normal(size=(1, 2, 4, 4)).astype(np.float32)
    return proto, {"x": x, "scales": np.array([1, 1, 2, 2], np.float32)}


def rounded() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """fp16 cannot tell 10001 from 10002."""
    proto = small.model(
        [
            helper.make_node("Softmax", ["x"], ["s"], name="culprit"),
            helper.make_node("Neg", ["s"], ["y"], name="neg"),
        ],
        [small.value("x", [1, 4])],
        [small.value("y", [1, 4])],
    )
    return proto, {"x": np.array([[10000, 10001, 10002, 10003]], np.float32)}


def wrong() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The compiler ignores the bounds of a Clip before opset 11."""
    proto = between_others("Clip", shape=[2, 8], out=[2, 8], min=0.25, max=0.5)
    return proto, {"x": RNG.uniform(0, 4, (2, 8)).astype(np.float32)}


CASES = {Blame.FAILS: failing, Blame.ROUNDED: rounded, Blame.WRONG: wrong}


@pytest.mark.parametrize("blame", CASES)
def test_finds_the_one_to_blame(blame: Blame, tmp_path: Path) -> None:
    proto, sample = CASES[blame]()
    model = ir.from_proto(proto)
    infer_shapes(model)
    tensors = compute_tensors(model, sample, tmp_path, Limits())
    with Trials(tmp_path, TARGET, Limits(60)) as trials:
        found = list(find_suspects(model, tensors, trials, 20.0, FOREVER))
    assert [(suspect.name, suspect.blame) for suspect in found] == [("culprit", blame)]
    assert found[0].macs == 0


def test_a_model_that_fails_is_rescued(tmp_path: Path) -> None:
    proto, sample = failing()
    reference = dict(zip(["y"], cpu(proto, sample), strict=True))
    bench = Workbench(ir.from_proto(proto), TARGET, tmp_path, [sample], [reference], Limits(120))
    before = stand(bench, bench.model)
    assert before.failure is not None
    after = rescue(bench, before, 60)
    assert after.verdict is not None
    assert after.htp is not None
    assert after.htp.sqnr_db >= 40
    (attempt,) = bench.attempts
    assert attempt.kept
    assert attempt.nodes == ("culprit",)
    assert "Upsample: the NPU fails on it: " in attempt.why
    assert "0 MACs" in attempt.why
    (loop,) = (node for node in bench.model.graph if node.op_type == "Loop")
    assert loop.metadata_props[PIN] == "the NPU fails on it"
    assert not {"Relu", "Neg"} & {node.op for node in after.verdict.cpu_nodes}


def test_what_is_not_broken_is_left(tmp_path: Path) -> None:
    proto = small.conv_relu()
    sample: dict[str, np.ndarray] = {"x": RNG.normal(size=(1, 3, 16, 16)).astype(np.float32)}
    reference = dict(zip(["y"], cpu(proto, sample), strict=True))
    bench = Workbench(ir.from_proto(proto), TARGET, tmp_path, [sample], [reference], Limits(120))
    before, model = stand(bench, bench.model), bench.model
    assert rescue(bench, before, 60) is before
    assert bench.model is model
    assert not bench.attempts


def test_a_pin_that_does_not_help_is_undone() -> None:
    proto, sample = failing()
    start = Score(-math.inf, "it fails whatever is done")
    found = rescue_model(ir.from_proto(proto), sample, start, lambda _: start, TARGET, 60)
    assert not found.pins
    assert [suspect.name for suspect in found.undone] == ["culprit"]
    assert not [node for node in found.model.graph if node.op_type == "Loop"]


def test_no_time_gives_the_model_as_it_was() -> None:
    proto, sample = failing()
    start = Score(-math.inf, "it fails")
    found = rescue_model(ir.from_proto(proto), sample, start, lambda _: start, TARGET, 0)
    assert found.score == start
    assert not found.pins
    assert not found.undone


def test_a_node_with_several_outputs_is_pinned() -> None:
    proto = small.model(
        [
            helper.make_node("Relu", ["x"], ["a"], name="relu"),
            helper.make_node("TopK", ["a", "k"], ["values", "places"], name="topk"),
            helper.make_node("Neg", ["values"], ["y"], name="neg"),
        ],
        [small.value("x", [2, 8])],
        [small.value("y", [2, 3]), small.value("places", [2, 3], TensorProto.INT64)],
        [small.constant("k", np.array([3]))],
    )
    model = ir.from_proto(proto)
    infer_shapes(model)
    (node,) = (node for node in model.graph if node.op_type == "TopK")
    pin(node, "for the test", {})
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert [output.name for output in after.graph.output] == ["y", "places"]
    assert_equivalent(proto, after, [{"x": RNG.normal(size=(2, 8)).astype(np.float32)}])
    assert {"TopK", "Loop"} <= cpu_ops(after)
    assert not {"Relu", "Neg"} & cpu_ops(after)


@given(st.integers(0, 300), st.integers(1, 300))
def test_halving_finds_where_it_turns(good: int, more: int) -> None:
    bad = good + more
    for turn in (good + 1, (good + bad + 1) // 2, bad):
        assert _turn(good, bad, lambda n, turn=turn: n >= turn, FOREVER) == turn  # type: ignore[misc]


def test_nearness() -> None:
    numbers = np.array([1.0, np.inf, np.nan], np.float32)
    assert nearness({"y": numbers}, {"y": numbers}) == math.inf
    assert nearness({"y": numbers}, {"y": np.array([1.0, 65504, np.nan], np.float32)}) == -math.inf
    assert nearness({"y": np.array([3])}, {"y": np.array([4])}) == -math.inf
    assert nearness({"y": numbers}, {}) == -math.inf
    tenth = {"y": np.array([1.1], np.float32)}
    assert nearness({"y": np.array([1.0], np.float32)}, tenth) == pytest.approx(20, abs=0.01)
    # −∞ on one output is not made good by the other.
    assert nearness({"a": numbers, "y": np.array([3])}, {"a": numbers, "y": np.array([4])}) == -math.inf


@pytest.mark.parametrize(("chip", "pins"), [("SM8650", 1), ("SM7350", 0)])
def test_a_chip_without_float_is_not_pinned_for_its_twins_arithmetic(
    chip: str, pins: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "float_twin", lambda _: TARGET)
    proto, sample = rounded()
    model = small.save(proto, tmp_path / "m.onnx")
    calib = tmp_path / "samples.npz"
    np.savez(calib, x=sample["x"][None])
    prepared = prepare(model, output=tmp_path / "p.onnx", target=chip, calib=calib)
    assert len(prepared.pins) == pins
