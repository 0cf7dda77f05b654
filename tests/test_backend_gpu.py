"""The GPU backend, as far as a machine without an Adreno can show it: what it says, and its gate."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from rich.console import Console

import hexport
import small_models as small
from hexport import facts
from hexport.backend import where as places
from hexport.backend.failures import BackendNotInitialised
from hexport.backend.native_log import NativeLog
from hexport.backend.op_trace import OpTrace, Unsupported
from hexport.backend.probe import Evidence
from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.backend.where import BackendUnfit, choose_where
from hexport.diagnosis.opencl import OpenCl
from hexport.model import read
from hexport.model.tiny import tiny_model
from hexport.observe.judgement import judge
from hexport.observe.verdict import Verdict
from hexport.observe.verdict_view import show
from hexport.runtime.running import run
from hexport.toolchain import Worker
from hexport.verification.verb import verify

without_adreno = pytest.mark.skipif(
    not facts.simulates_npu(facts.current_platform()), reason="this machine may have an Adreno"
)


def quantised(folder: Path) -> Path:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    constants = [
        small.constant("scale", np.array(0.1, np.float32)),
        small.constant("zero", np.array(0, np.uint8)),
    ]
    proto = small.model(nodes, [small.value("x", [4])], [small.value("y", [4])], constants)
    return small.save(proto, folder / "q.onnx")


@without_adreno
def test_no_adreno_is_one_exact_error_of_every_verb(tmp_path: Path) -> None:
    """The session would be made all the same, with every node on the CPU and nothing raised."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 3, 16, 16), np.float32))
    found = []
    for verb in (
        lambda: hexport.check(path, backend="gpu"),
        lambda: run(path, inputs=tmp_path / "in.npz", output=tmp_path / "out.npz", backend="gpu"),
        lambda: verify(path, backend="gpu", samples=1),
    ):
        with pytest.raises(BackendNotInitialised) as caught:
            verb()
        found.append(caught.value)
    for error in found:
        assert error.what.startswith("the GPU backend did not start")
        assert "QNN_BACKEND_ERROR_CANNOT_INITIALIZE" in error.why
        assert "an Adreno GPU and Qualcomm's OpenCL driver" in error.why
        assert error.native_log
    # check runs at the verbose level, where the library gives its own reason.
    assert "GPU_ERROR" in found[0].why
    assert not (tmp_path / "out.npz").exists()


@without_adreno
def test_the_state_of_opencl_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hexport.diagnosis.opencl.look_for_opencl", lambda: OpenCl("libOpenCL.so.1", ("libpocl.so",))
    )
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_model())
    with pytest.raises(BackendNotInitialised, match=r"libOpenCL\.so\.1, drivers: libpocl\.so"):
        hexport.check(path, backend="gpu")


def test_a_quantised_model_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "__init__", lambda *_, **__: pytest.fail("a worker was started"))
    path = quantised(tmp_path)
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32))
    for verb in (
        lambda: hexport.check(path, backend="gpu"),
        lambda: run(path, inputs=tmp_path / "in.npz", backend="gpu"),
        lambda: verify(path, backend="gpu"),
    ):
        with pytest.raises(BackendUnfit, match="is quantised") as caught:
            verb()
        assert "fp32 and fp16 models only" in caught.value.why


def test_a_library_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    log = tmp_path / "native.log"
    log.write_text("", encoding="utf-8")
    failure = "Unable to load backend, error: libQnnGpu.so: cannot open shared object file"
    error = places.dead(choose_where("gpu", None), failure, log, "")
    assert isinstance(error, places.BackendAbsent)
    assert "doctor" in error.next


# ---------------------------------------------------------------- the verdict of a machine that has one


def judged(tmp_path: Path, *left: str) -> Verdict:
    """What a session would be judged as that leaves these nodes of MatMul, Erf, MatMul, Relu to the CPU."""
    model = read(small.save(small.cut_by_erf(), tmp_path / "m.onnx"))
    nodes = [AssignedNode(node.name, node.op, node.domain) for node in model.graph.nodes]
    taken = tuple(node for node in nodes if node.op not in left)
    parts = [AssignedPart("QNNExecutionProvider", taken)] if taken else []
    parts += [AssignedPart("CPUExecutionProvider", (node,)) for node in nodes if node.op in left]
    reasons = tuple(
        Unsupported(node.name, node.op, "Failed to add node.") for node in nodes if node.op in left
    )
    log = NativeLog(frozenset(), {}, {}, None, "")
    evidence = Evidence(tuple(parts), OpTrace(reasons, (), {}), log, {}, 0.5, None, (), ())
    where = choose_where("gpu", None)
    return judge(str(model.path), model, where, "float", {"x": (4, 16)}, evidence, [])


def shown(verdict: Verdict, require: str | None = None) -> str:
    text = io.StringIO()
    show(verdict, Console(file=text, width=200), require=require)
    return text.getvalue()


def test_the_gate_for_the_whole_model(tmp_path: Path) -> None:
    whole, part = judged(tmp_path), judged(tmp_path, "Erf")
    assert whole.meets("full")
    assert not part.meets("full")
    assert [node.cause for node in part.cpu_nodes] == ["validation-rejected"]
    assert "PASSED: --require full" in shown(whole, "full")
    assert "FAILED: --require full" in shown(part, "full")


def test_the_verdict_speaks_of_the_gpu(tmp_path: Path) -> None:
    text = shown(judged(tmp_path, "Erf"))
    assert "on the GPU, float" in text
    assert "between GPU nodes" in text
    assert "share on GPU" in text
    assert "NPU" not in text.replace("The NPU may take it", "")
    assert "✓ every node runs on the GPU, in one partition" in shown(judged(tmp_path))
    nothing = judged(tmp_path, "MatMul", "Erf", "Relu")
    assert "✗ nothing runs on the GPU" in shown(nothing)
    assert nothing.warnings == ("nothing of this model runs on the GPU",)


def test_the_document_names_the_backend(tmp_path: Path) -> None:
    document = judged(tmp_path, "Erf").to_json()
    assert (document["backend"], document["target"], document["full"]) == ("gpu", None, False)
    assert document["nodes"] == {"npu": 3, "cpu": 1}
    chip = places.on_chip(facts.find_target("SM8650"))
    npu = replace(judged(tmp_path), where=chip).to_json()
    assert npu["backend"] == "htp"
    assert npu["target"] == {"name": "SM8650", "soc_model": 57, "htp_arch": 75}
