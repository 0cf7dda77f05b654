"""``check`` on small models, against the real compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models as small
from hexport import check, facts
from hexport.backend.running import run_on_htp
from hexport.observe.verdict import Share, Verdict


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    return check(small.save(small.cut_by_erf(), tmp_path_factory.mktemp("m") / "cut.onnx"), target="SM8650")


def test_a_model_that_runs_whole(tmp_path: Path) -> None:
    verdict = check(small.save(small.conv_relu(), tmp_path / "m.onnx"), target="snapdragon 8 gen 3")
    assert verdict.full
    assert verdict.nodes == Share(npu=2, cpu=0)
    assert verdict.macs == Share(npu=8 * 16 * 16 * 3 * 9, cpu=0)
    assert [part.nodes for part in verdict.partitions] == [2]
    assert verdict.target.chip == "SM8650"
    assert verdict.scheme == "fp16"
    assert verdict.precisions["FP16"] >= 2
    assert verdict.context_bytes is not None
    assert verdict.context_bytes > 8 * 27 * 2
    assert verdict.ddr is not None
    # One input of 3·16·16 halves has to come in at least.
    assert verdict.ddr.read_total >= 3 * 16 * 16 * 2
    assert verdict.warnings == ()


def test_a_model_that_is_cut(cut: Verdict) -> None:
    assert not cut.full
    assert len(cut.partitions) == 2
    (erf,) = cut.cpu_nodes
    assert (erf.name, erf.op, erf.cuts) == ("the_erf", "Erf", True)
    assert "`Erf` are not supported" in erf.reason
    assert erf.cause == "op-not-registered"
    assert "prepare" in erf.advice
    assert cut.macs == Share(npu=2 * 4 * 16 * 16, cpu=0)
    assert cut.nodes == Share(npu=3, cpu=1)


def test_names_are_the_users(cut: Verdict) -> None:
    assert {(p.first, p.last) for p in cut.partitions} == {("first", "first"), ("second", "Relu#3")}


@pytest.mark.parametrize(
    ("require", "holds"), [(None, True), ("full", False), ("100", True), ("99%", True), ("0", True)]
)
def test_require(cut: Verdict, require: str | None, holds: bool) -> None:
    # All MACs are on the NPU although one node is not: a percentage speaks of MACs.
    assert cut.meets(require) is holds


def test_an_unknown_share_does_not_hold(cut: Verdict) -> None:
    """A CPU node whose MACs are not known could be all of the work."""
    (erf,) = cut.cpu_nodes
    doubtful = replace(cut, cpu_nodes=(replace(erf, macs=None),))
    assert not doubtful.meets("50")
    assert replace(doubtful, cpu_nodes=()).meets("50")


def test_json_has_what_programs_rely_on(cut: Verdict) -> None:
    document = json.loads(json.dumps(cut.to_json()))
    assert document["schema_version"] == 1
    assert document["target"] == {"name": "SM8650", "soc_model": 57, "htp_arch": 75}
    assert document["nodes"] == {"npu": 3, "cpu": 1}
    assert document["macs"] == {"npu": 2048, "cpu": 0}
    assert set(document["cpu_nodes"][0]) >= {"name", "op", "reason", "advice"}
    assert document["partitions"] == 2
    assert [part["first"] for part in document["partition_nodes"]] == ["first", "second"]
    assert isinstance(document["warnings"], list)


def test_sizes_reach_the_compiler(tmp_path: Path) -> None:
    path = small.save(small.conv_relu("batch"), tmp_path / "m.onnx")
    one, four = (
        check(path, target=57, dims={"batch": 1}),
        check(path, target=57, input_shapes={"x": (4, 3, 16, 16)}),
    )
    assert four.macs.npu == 4 * one.macs.npu
    assert four.input_shapes == {"x": (4, 3, 16, 16)}


def test_external_data_is_found_from_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(small.conv_relu(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").exists()
    assert check(path, target="SM8650").full


def test_quantised_edges_are_listed_apart(tmp_path: Path) -> None:
    scale, zero = small.constant("s", np.float32(0.02)), small.constant("z", np.uint8(128))
    quantised = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="q_in"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="dq_in"),
        helper.make_node("Relu", ["xd"], ["r"], name="relu"),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["rq"], name="q_out"),
        helper.make_node("DequantizeLinear", ["rq", "s", "z"], ["y"], name="dq_out"),
    ]
    proto = small.model(quantised, [small.value("x", [1, 64])], [small.value("y", [1, 64])], [scale, zero])
    verdict = check(small.save(proto, tmp_path / "m.onnx"), target="QCM6490")
    assert verdict.scheme == "8a8w"
    assert verdict.full, verdict.cpu_nodes
    assert set(verdict.io_quantization) == {"q_in", "dq_out"}
    assert verdict.precisions == {"INT8": verdict.precisions["INT8"]}


def test_nodes_in_a_loop_are_explained_by_the_loop(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["state", "one"], ["next"], name="step"),
        ],
        "body",
        [
            small.value("i", [], onnx.TensorProto.INT64),
            small.value("go", [], onnx.TensorProto.BOOL),
            small.value("state", [4]),
        ],
        [small.value("go_on", [], onnx.TensorProto.BOOL), small.value("next", [4])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="before"),
        helper.make_node("Loop", ["n", "", "r"], ["l"], name="loop", body=body),
        helper.make_node("Mul", ["l", "one"], ["y"], name="after"),
    ]
    inputs = [small.value("x", [4]), small.value("n", [], onnx.TensorProto.INT64)]
    one = small.constant("one", np.ones(4, np.float32))
    verdict = check(
        small.save(small.model(nodes, inputs, [small.value("y", [4])], [one]), tmp_path / "m.onnx"),
        target="SM8650",
    )
    found = {node.name: node for node in verdict.cpu_nodes}
    assert found["loop"].cause == "control-flow"
    assert found["step"].inside == "loop"
    assert found["step"].advice == found["loop"].advice


@pytest.mark.parametrize("opset", [10, 13])
def test_forms_the_compiler_gets_wrong_are_said(tmp_path: Path, opset: int) -> None:
    """A Clip of opset 10 is taken, and its bounds are ignored: the proof, and the warning."""
    old = opset < 11
    inputs = ["x"] if old else ["x", "low", "high"]
    bounds = {"min": -1.0, "max": 1.0} if old else {}
    constants = [] if old else [small.constant("low", np.float32(-1)), small.constant("high", np.float32(1))]
    nodes = [helper.make_node("Clip", inputs, ["c"], **bounds), helper.make_node("Neg", ["c"], ["y"])]
    proto = small.model(nodes, [small.value("x", [1, 8])], [small.value("y", [1, 8])], constants, opset)
    path = small.save(proto, tmp_path / "m.onnx")
    x = np.linspace(-4, 4, 8, dtype=np.float32)[None]
    (got,) = run_on_htp(path, [{"x": x}], facts.find_target("SM8650")).outputs
    right = np.allclose(got["y"], -np.clip(x, -1, 1), atol=0.01)
    warned = any("Clip nodes compute wrongly" in warning for warning in check(path, target="SM8650").warnings)
    assert right is not warned
    assert warned is old


def test_native_log_is_kept_on_request(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    check(path, target="SM8650", native_log=tmp_path / "native.log")
    assert "DDR bandwidth summary" in (tmp_path / "native.log").read_text("utf-8", "replace")


def test_the_same_model_gives_the_same_verdict(tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    first, second = check(path, target="SM8650").to_json(), check(path, target="SM8650").to_json()
    first.pop("compile_seconds")
    second.pop("compile_seconds")
    assert first == second
