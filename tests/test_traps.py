"""The ways onnxruntime-qnn fails or pretends, each provoked for real and caught with its own type."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import small_models as small
from hexport import facts, zoo
from hexport.backend import calling, failures, probe
from hexport.backend.native_log import read_native_log
from hexport.backend.options import InvalidOption
from hexport.backend.requests import SessionReply, SessionRequest
from hexport.backend.where import on_chip
from hexport.model import read
from hexport.model.staging import StagedModel, stage
from hexport.records import from_plain, to_plain
from hexport.toolchain import Limits, Worker, WorkerTimeout

TARGET = facts.find_target("SM8650")
NPU = on_chip(TARGET)


@pytest.fixture
def staged(tmp_path: Path) -> StagedModel:
    model = read(small.save(small.conv_relu(), tmp_path / "m.onnx"))
    return stage(model, {"x": (1, 3, 16, 16)}, tmp_path)


def session(
    staged: StagedModel, tmp_path: Path, options: dict[str, str], module: str = calling.MODULE
) -> SessionReply:
    """A session past hexport's own checks of the options, as plain onnxruntime would make it."""
    request = SessionRequest(str(staged.model), "", options)
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with Worker(module, tmp_path / "native.log", environment=here) as worker:
        return probe._create(worker, request)


def test_provider_that_throws_is_not_replaced_by_the_cpu(staged: StagedModel, tmp_path: Path) -> None:
    with pytest.raises(failures.EpCreationFailed) as caught:
        session(staged, tmp_path, {"backend_type": "htp", "enable_htp_fp16_precision": "1"})
    assert "soc_model is not specified" in caught.value.why
    assert caught.value.native_log


def test_the_silent_retry_on_the_cpu_is_seen(staged: StagedModel, tmp_path: Path) -> None:
    """With the fallback that onnxruntime has on by default, the same mistake raises nothing there."""
    options = {"backend_type": "htp", "enable_htp_fp16_precision": "1"}
    reply = session(staged, tmp_path, options, module="fallback_worker")
    assert reply.providers == ("CPUExecutionProvider",)
    log = tmp_path / "native.log"
    with pytest.raises(failures.SilentCpuRetry, match="without the QNN provider"):
        probe._refuse_pretence(NPU, reply, read_native_log(log), tmp_path / "qnn_op_trace.json", log)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"backend_type": "gpu"}, "QNN_BACKEND_ERROR_CANNOT_INITIALIZE"),
        ({"backend_type": "cpu"}, "QnnCpu"),
        ({"backend_type": "htp", "soc_model": "9999"}, "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ({"backend_path": "no-such-library.so"}, "cannot open shared object"),
    ],
)
def test_backend_that_did_not_start(
    staged: StagedModel, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    reply = session(staged, tmp_path, options)
    # This is the trap: the provider is listed, nothing was raised, and all of it is on the CPU.
    assert "QNNExecutionProvider" in reply.providers
    assert {part.provider for part in reply.parts} == {"CPUExecutionProvider"}
    log = tmp_path / "native.log"
    with pytest.raises(failures.BackendNotInitialised) as caught:
        probe._refuse_pretence(NPU, reply, read_native_log(log), tmp_path / "qnn_op_trace.json", log)
    assert why in caught.value.why


def test_library_that_is_no_backend(staged: StagedModel, tmp_path: Path) -> None:
    """What a library of another version gives: no valid interface, then all on the CPU."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    assert spec is not None
    assert spec.origin is not None
    other = Path(spec.origin).parent / "libQnnSystem.so"
    reply = session(staged, tmp_path, {"backend_path": str(other)})
    log = tmp_path / "native.log"
    with pytest.raises(failures.BackendNotInitialised):
        probe._refuse_pretence(NPU, reply, read_native_log(log), tmp_path / "qnn_op_trace.json", log)


def test_float_without_a_target_is_not_fp16(tmp_path: Path) -> None:
    """Why hexport always asks for --target: without it real float graphs fail with 1002, or run in fp32."""
    model = read(zoo.get("ppocrv4-det"))
    staged = stage(model, zoo.entry("ppocrv4-det").input_shapes, tmp_path)
    with pytest.raises(failures.CompileFailed, match="1002") as caught:
        session(staged, tmp_path, {"backend_type": "htp"})
    assert "soc_model" in caught.value.next


@pytest.mark.parametrize(
    "options",
    [{"htp_arch": "85"}, {"soc_model": "SM9999"}, {"htp_performance_mod": "burst"}, {"vtcm_mb": "4096"}],
)
def test_options_the_provider_would_swallow_are_refused(
    staged: StagedModel, tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidOption):
        probe.probe(staged, NPU, tmp_path, options=options)
    assert not (tmp_path / "native.log").exists(), "nothing native may have been started"


def test_saver_returns_no_numbers(staged: StagedModel, tmp_path: Path) -> None:
    request = SessionRequest(str(staged.model), "", {"backend_type": "saver"}, run_once=True)
    with Worker(calling.MODULE, tmp_path / "log") as worker, pytest.raises(failures.SaverOnlyRecords):
        calling.call(worker, "create_session", request)


def test_the_simulator_really_computes(tmp_path: Path) -> None:
    """Relu(conv) on ones through the HTP simulator, against the same sum done here."""
    import numpy as np

    proto = small.conv_relu()
    staged = stage(read(small.save(proto, tmp_path / "m.onnx")), {"x": (1, 3, 16, 16)}, tmp_path)
    options = {"backend_type": "htp", "soc_model": str(TARGET.soc_model)}
    request = SessionRequest(str(staged.model), "", options, run_once=True)
    with Worker(calling.MODULE, tmp_path / "log") as worker:
        reply = from_plain(SessionReply, worker.call("create_session", to_plain(request)))
    weight = np.frombuffer(proto.graph.initializer[0].raw_data, np.float32).reshape(8, 3, 3, 3)
    centre = np.array(reply.values).reshape(8, 16, 16)[:, 8, 8]
    expected = np.maximum(weight.astype(np.float64).sum(axis=(1, 2, 3)), 0)
    np.testing.assert_allclose(centre, expected, atol=0.02)
    # fp16, not fp32: the two differ in the fourth digit, and a float32 run would not.
    assert np.abs(centre - expected).max() > 1e-5


def test_time_limit_holds_for_the_real_compiler(staged: StagedModel, tmp_path: Path) -> None:
    with pytest.raises(WorkerTimeout):
        probe.probe(staged, NPU, tmp_path, limits=Limits(seconds=0.05))
