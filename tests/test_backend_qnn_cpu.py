"""QNN's CPU backend, for real: in a toolchain of the last release for Linux that carries it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hexport
import small_models as small
from hexport.backend.calling import MODULE, call
from hexport.backend.requests import AssignedPart, SessionReply, SessionRequest
from hexport.backend.running import run_on, run_on_cpu
from hexport.backend.where import NotWhole, choose_where
from hexport.environments.choosing import using
from hexport.environments.record import Toolchain
from hexport.records import from_plain
from hexport.runtime.running import run
from hexport.toolchain import Worker
from hexport.verification.verb import verify

EXACT_DB = 110.0
"""Nearer than this only the order of float32 sums differs."""


@pytest.fixture(autouse=True)
def there(older: Toolchain) -> Iterator[None]:
    with using(older.name):
        yield


def half(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same with every tensor in float16."""
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return proto


def gemm_8_bit() -> onnx.ModelProto:
    """Gemm between Q/DQ pairs, its weights quantised for each row by itself, as quantisers do."""
    rng = np.random.default_rng(0)
    scales = np.linspace(0.001, 0.02, 8, dtype=np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], axis=0),
        helper.make_node("Gemm", ["xd", "wd"], ["g"], name="gemm", transB=1),
        helper.make_node("QuantizeLinear", ["g", "sy", "zx"], ["gq"]),
        helper.make_node("DequantizeLinear", ["gq", "sy", "zx"], ["y"]),
    ]
    constants = [
        small.constant("sx", np.array(0.03, np.float32)),
        small.constant("zx", np.array(128, np.uint8)),
        small.constant("wq", rng.integers(-127, 128, (8, 16)).astype(np.int8)),
        small.constant("sw", scales),
        small.constant("zw", np.zeros(8, np.int8)),
        small.constant("sy", np.array(0.1, np.float32)),
    ]
    return small.model(nodes, [small.value("x", [4, 16])], [small.value("y", [4, 8])], constants)


def padded(shape: list[int], border: list[int]) -> onnx.ModelProto:
    rank = len(shape)
    grown = [shape[axis] + border[axis] + border[rank + axis] for axis in range(rank)]
    node = helper.make_node("Pad", ["x", "pads"], ["y"], name="pad", mode="reflect")
    pads = small.constant("pads", np.array(border))
    return small.model([node], [small.value("x", [*shape])], [small.value("y", [*grown])], [pads])


def test_check_of_a_model_that_it_takes_whole(tmp_path: Path) -> None:
    verdict = hexport.check(small.save(small.conv_relu(), tmp_path / "m.onnx"), backend="qnn-cpu")
    assert verdict.full
    assert (verdict.nodes.npu, verdict.nodes.cpu, len(verdict.partitions)) == (2, 0, 1)
    assert verdict.macs.npu == 8 * 16 * 16 * 3 * 3 * 3
    assert (verdict.scheme, verdict.context_bytes, verdict.ddr, verdict.warnings) == ("float", None, None, ())


def test_check_of_a_model_that_is_cut(tmp_path: Path) -> None:
    verdict = hexport.check(small.save(small.cut_by_erf(), tmp_path / "m.onnx"), backend="qnn-cpu")
    assert not verdict.meets("full")
    assert len(verdict.partitions) == 2
    (node,) = verdict.cpu_nodes
    assert (node.name, node.op, node.cuts, node.cause) == ("the_erf", "Erf", True, "op-not-registered")
    assert "Erf" in node.reason
    assert "prepare" not in node.advice, "what is done for the NPU is no advice here"


def test_half_precision_is_left_and_said_node_by_node(tmp_path: Path) -> None:
    """onnxruntime 1.26 lists no node that it casts from float16: they are not folded, but on the CPU."""
    path = small.save(half(small.conv_relu()), tmp_path / "m.onnx")
    verdict = hexport.check(path, backend="qnn-cpu")
    assert (verdict.nodes.npu, verdict.nodes.cpu, verdict.folded) == (0, 2, 0)
    assert {node.name: node.cause for node in verdict.cpu_nodes} == {
        "conv": "dtype-unsupported",
        "relu": "validation-rejected",
    }
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 3, 16, 16), np.float16))
    with pytest.raises(NotWhole):
        run(path, inputs=tmp_path / "in.npz", backend="qnn-cpu", allow_cpu=False)
    (line,) = run(path, inputs=tmp_path / "in.npz", backend="qnn-cpu").notes
    assert line.startswith("nothing of")


def test_half_precision_beside_the_npu_is_not_folded_either(tmp_path: Path) -> None:
    """The same with the HTP of that release."""
    path = small.save(half(small.cut_by_erf()), tmp_path / "m.onnx")
    verdict = hexport.check(path, target="SM8650")
    assert [node.name for node in verdict.cpu_nodes] == ["the_erf"]
    assert not verdict.full


def test_run_computes_in_float32(tmp_path: Path) -> None:
    proto = small.conv_relu()
    path = small.save(proto, tmp_path / "m.onnx")
    x = np.random.default_rng(3).normal(size=(1, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    ran = run(
        path,
        inputs=tmp_path / "in.npz",
        output=tmp_path / "out.npz",
        backend="qnn-cpu",
        allow_cpu=False,
    )
    assert "QNN's CPU backend" in ran.notes[0]
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0]).astype(np.float64)
    window = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    expected = np.maximum(np.einsum("ncijkl,ockl->noij", window, weight), 0)
    with np.load(tmp_path / "out.npz") as results:
        np.testing.assert_allclose(results["y"], expected, atol=1e-4)


def test_run_says_what_it_left_and_may_refuse_it(tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((4, 16), np.float32))
    ran = run(path, inputs=tmp_path / "in.npz", backend="qnn-cpu")
    assert ran.notes[0].endswith("3 nodes there, 1 on ONNX Runtime's CPU")
    with pytest.raises(NotWhole, match="not wholly on QNN's CPU backend") as caught:
        run(path, inputs=tmp_path / "in.npz", backend="qnn-cpu", allow_cpu=False)
    assert "--backend qnn-cpu" in caught.value.next


def test_verify_finds_a_float_model_as_good_as_exact(tmp_path: Path) -> None:
    match = verify(small.save(small.conv_relu(), tmp_path / "m.onnx"), backend="qnn-cpu", min_sqnr=EXACT_DB)
    assert match.passed
    assert (match.backend, match.target, match.cpu_nodes) == ("qnn-cpu", None, 0)
    assert match.npu_nodes >= 2


def test_quantised_models_are_doubtful_there(tmp_path: Path) -> None:
    """Why the facts say so: an 8-bit Gemm with weights a channel is taken, and is wrong."""
    path = small.save(gemm_8_bit(), tmp_path / "m.onnx")
    verdict = hexport.check(path, backend="qnn-cpu")
    assert verdict.scheme == "8a8w"
    assert "gemm" not in {node.name for node in verdict.cpu_nodes}
    match = verify(path, backend="qnn-cpu", min_sqnr=20.0)
    assert not match.passed
    for said in (verdict.warnings, match.notes):
        assert any("reference for float32" in line for line in said)


@pytest.mark.parametrize(
    ("shape", "border", "right"),
    [([5, 7], [0, 2, 0, 2], True), ([1, 3, 6, 6], [0, 0, 1, 1, 0, 0, 1, 1], False)],
)
def test_a_form_that_it_gets_wrong_is_said(
    tmp_path: Path, shape: list[int], border: list[int], right: bool
) -> None:
    path = small.save(padded(shape, border), tmp_path / "m.onnx")
    sample = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    expected = run_on_cpu(path, [sample]).outputs[0]["y"]
    got = run_on(path, [sample], choose_where("qnn-cpu", None)).outputs[0]["y"]
    assert np.allclose(got, expected) is right
    (warning,) = hexport.check(path, backend="qnn-cpu").warnings
    assert "mode=reflect" in warning


def parts_of(path: Path, log: Path, session: dict[str, str]) -> tuple[AssignedPart, ...]:
    """A session past hexport's own checks of the options."""
    request = SessionRequest(str(path), "", {"backend_type": "cpu"}, session)
    with Worker(MODULE, log) as worker:
        return from_plain(SessionReply, call(worker, "create_session", request)).parts


def test_why_it_is_never_asked_for_a_context(tmp_path: Path) -> None:
    """The provider answers the wish by taking no node, and raises nothing."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    plain = parts_of(path, tmp_path / "plain.log", {})
    context = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "ctx.onnx")}
    asked = parts_of(path, tmp_path / "asked.log", context)
    assert {part.provider for part in plain} == {"QNNExecutionProvider"}
    assert {part.provider for part in asked} == {"CPUExecutionProvider"}


def test_the_command_line(tmp_path: Path, older: Toolchain) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "hexport", "check", str(path), "--backend", "qnn-cpu"]
    command += ["--toolchain", older.name, "--require", "full", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert (document["backend"], document["target"]) == ("qnn-cpu", None)
    assert document["toolchain"]["name"] == older.name
    assert document["nodes"] == {"npu": 3, "cpu": 1}
