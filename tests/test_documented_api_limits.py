"""What sessions of the documented API refuse, and what they say when not all is as the caller believes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import documented_sessions
import hexport.onnxruntime as onnxruntime
import small_models as small
from documented_sessions import CHIP, ONES, partly_on_cpu, session
from hexport.backend.failures import BackendError, SaverOnlyRecords
from hexport.backend.options import InvalidOption
from hexport.errors import HexportError, UsageError
from hexport.onnxruntime.dumping import ContextFileExists, SharedContextUnloadable
from hexport.onnxruntime.libraries import backend_of
from hexport.onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from hexport.onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from hexport.toolchain import WorkerCrashed, WorkerError

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.save(small.conv_relu(), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("QnnHtp.dll", "htp"),
        ("libQnnHtp.so", "htp"),
        ("QnnHtp", "htp"),
        ("qnngpu.dll", "gpu"),
        ("libQnnCpu.so", "cpu"),
        ("libQnnSaver.so", "saver"),
        ("libQnnIr.so", "ir"),
    ],
)
def test_library_names_of_any_platform(name: str, backend: str) -> None:
    assert backend_of(name, "backend_path") == backend


def test_library_of_an_sdk_is_not_used_and_that_is_said() -> None:
    with pytest.warns(onnxruntime.QnnWarning, match="instead of"):
        assert backend_of(r"C:\qnn\2.31\lib\aarch64-windows-msvc\QnnHtp.dll", "backend_path") == "htp"


@pytest.mark.parametrize("name", ["QnnHpt.dll", "libonnxruntime.so", "QnnSystem.dll", ""])
def test_wrong_library(model: Path, name: str) -> None:
    with pytest.raises(onnxruntime.WrongLibrary, match="no QNN backend library"):
        session(model, {"backend_path": name})


@pytest.mark.parametrize(
    ("provider", "entries", "named"),
    [
        ({"htp_performance_mod": "burst"}, {}, "htp_performance_mode"),
        ({"htp_performance_mode": "Burst"}, {}, "burst"),
        ({"soc_model": "9999"}, {}, "9999"),
        ({"vtcm_mb": "4096", "soc_model": "57"}, {}, "vtcm_mb"),
        ({"backend_type": "htp", "backend_path": "QnnHtp.dll"}, {}, "backend_path"),
        ({}, {"ep__context_enabled": "1"}, "ep.context_enable"),
        ({}, {"ep__context_enable": "true"}, "ep.context_enable"),
    ],
)
def test_options_are_checked_before_anything_native(
    model: Path, provider: dict[str, str], entries: dict[str, str], named: str
) -> None:
    with pytest.raises(HexportError, match=named):
        session(model, provider, **entries)


def test_options_of_a_run_and_of_a_running_session(model: Path) -> None:
    with pytest.raises(InvalidOption, match=r"qnn\.htp_perf_mode"):
        onnxruntime.RunOptions().add_run_config_entry("qnn.htp_perf_mod", "burst")
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("qnn.htp_perf_mode", "burst")
    made = session(model)
    assert made.run(None, ONES, options)[0].shape == (1, 8, 16, 16)
    with pytest.raises(InvalidOption, match="workload_type"):
        made.set_ep_dynamic_options({"ep.dynamic.workload_typ": "Efficient"})


def test_other_providers_beside_qnn(model: Path) -> None:
    with pytest.raises(UsageError, match="CUDA"):
        onnxruntime.InferenceSession(model, providers=["QNNExecutionProvider", "CUDAExecutionProvider"])
    with pytest.raises(UsageError, match="differ in length"):
        onnxruntime.InferenceSession(
            model, providers=["QNNExecutionProvider", "CPUExecutionProvider"], provider_options=[CHIP]
        )


def test_without_a_chip_one_is_chosen_and_named(model: Path) -> None:
    with pytest.warns(onnxruntime.QnnWarning, match="SC8380XP") as caught:
        session(model, {"backend_path": "QnnHtp.dll"}, hexport__prepare="0")
    assert Path(caught[0].filename) == Path(documented_sessions.__file__), "it points at the caller"
    with pytest.warns(onnxruntime.QnnWarning, match="soc_model 57"):
        session(model, {"htp_arch": "75"}, hexport__prepare="0")


def test_fallback_warns_or_raises(tmp_path: Path) -> None:
    path = small.save(partly_on_cpu(), tmp_path / "m.onnx")
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="unique"):
        made = session(path)
    assert any("unique" in node for node in made.cpu_nodes)
    np.testing.assert_array_equal(made.run(["u"], ONES)[0], np.unique(ONES["x"]))
    with pytest.raises(onnxruntime.CpuFallback, match="unique") as caught:
        session(path, session__disable_cpu_ep_fallback="1")
    assert isinstance(caught.value, RuntimeError)


def test_dynamic_dims_are_the_cpus_unless_sized(tmp_path: Path) -> None:
    path = small.save(small.conv_relu("batch"), tmp_path / "m.onnx")
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="--bucket"):
        made = session(path)
    assert made.get_providers() == ["CPUExecutionProvider"]
    assert made.run(None, {"x": np.ones((2, 3, 16, 16), np.float32)})[0].shape[0] == 2
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 1)
    sized = onnxruntime.InferenceSession(path, options, ["QNNExecutionProvider"], [CHIP])
    assert sized.get_providers()[0] == "QNNExecutionProvider"
    np.testing.assert_allclose(sized.run(None, ONES)[0], made.run(None, ONES)[0], atol=0.01)


def test_sizes_that_are_nothing_are_the_cpus(tmp_path: Path) -> None:
    """The compiler takes the sum of no elements, and then cannot do it; the ONNX standard tests it."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("ReduceSum", ["square", "axes"], ["sum"], name="sum"),
        helper.make_node("Sqrt", ["sum"], ["y"], name="root"),
    ]
    inputs = [small.value("x", [2, 0, 4]), small.value("axes", [1], onnx.TensorProto.INT64)]
    proto = small.model(nodes, inputs, [small.value("y", [2, 1, 4])], opset=18)
    path = small.save(proto, tmp_path / "m.onnx")
    feeds = {"x": np.zeros((2, 0, 4), np.float32), "axes": np.array([1])}
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="the compiler stops"):
        made = session(path)
    np.testing.assert_array_equal(made.run(None, feeds)[0], np.zeros((2, 1, 4)))
    with pytest.raises(onnxruntime.CpuFallback):
        session(path, session__disable_cpu_ep_fallback="1")


def crashing() -> onnx.ModelProto:
    """STFT that is told its step at run time: the compiler dies of it, and the ONNX standard tests it."""
    inputs = [
        small.value("signal", [1, 128, 1]),
        small.value("step", [], onnx.TensorProto.INT64),
        small.value("length", [], onnx.TensorProto.INT64),
    ]
    node = helper.make_node("STFT", ["signal", "step", "", "length"], ["y"], name="stft")
    return small.model([node], inputs, [small.value("y", [1, 15, 9, 2])])


def test_compiler_crash_is_an_exception(tmp_path: Path) -> None:
    path = small.save(crashing(), tmp_path / "m.onnx")
    with pytest.raises(WorkerCrashed):
        session(path, hexport__prepare="0")


def test_model_that_random_inputs_say_nothing_of_is_left_to_the_cpu(tmp_path: Path) -> None:
    """What the NPU would make of it cannot be known, and real inputs are needed to find out."""
    path = small.save(crashing(), tmp_path / "m.onnx")
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="--calib"):
        made = session(path)
    feeds = {"signal": np.ones((1, 128, 1), np.float32), "step": np.array(8), "length": np.array(16)}
    assert made.run(None, feeds)[0].shape == (1, 15, 9, 2)


def killing() -> onnx.ModelProto:
    """AveragePool with SAME_UPPER: plain onnxruntime dies of it; the ONNX standard tests it."""
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], name="pool", kernel_shape=[2, 2], auto_pad="SAME_UPPER"
    )
    shape: list[Any] = [1, 3, 32, 32]
    return small.model([node], [small.value("x", shape)], [small.value("y", shape)], opset=22)


def test_what_prepare_cures_is_cured_here(tmp_path: Path) -> None:
    path = small.save(killing(), tmp_path / "m.onnx")
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    made = session(path, session__disable_cpu_ep_fallback="1")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, atol=0.01)


def test_what_a_context_leaves_to_the_cpu_is_said(tmp_path: Path) -> None:
    path = small.save(partly_on_cpu(), tmp_path / "m.onnx")
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="unique"):
        session(path, ep__context_enable="1", hexport__prepare="0")
    with pytest.warns(onnxruntime.CpuFallbackWarning, match="Unique"):
        made = session(tmp_path / "m_ctx.onnx")
    np.testing.assert_array_equal(made.run(["u"], ONES)[0], np.unique(ONES["x"]))
    with pytest.raises(onnxruntime.CpuFallback):
        session(tmp_path / "m_ctx.onnx", session__disable_cpu_ep_fallback="1")


def test_profile_is_of_the_session_that_runs(model: Path) -> None:
    profile = model.with_name("profile.csv")
    provider = {**CHIP, "profiling_level": "basic", "profiling_file_path": str(profile)}
    made = session(model, provider, hexport__prepare="0")
    made.run(None, ONES)
    assert "EXECUTE" in profile.read_text("utf-8")


def test_entries_without_effect_are_said(model: Path) -> None:
    with pytest.warns(onnxruntime.QnnWarning, match="no effect here"):
        session(model, {**CHIP, "enable_framework_op_trace": "1"}, hexport__prepare="0")


def test_damaged_context_is_an_exception(model: Path) -> None:
    session(model, ep__context_enable="1", hexport__prepare="0")
    binary = model.with_name("m_ctx_qnn.bin")
    binary.write_bytes(binary.read_bytes()[:5000])
    with pytest.raises(WorkerError):
        session(model.with_name("m_ctx.onnx"))
    binary.unlink()
    with pytest.raises(BackendError):
        session(model.with_name("m_ctx.onnx"))


def test_shared_context_from_elsewhere(model: Path) -> None:
    other = small.save(small.conv_relu(), model.with_name("n.onnx"))
    common: Any = {"ep__context_enable": "1", "ep__share_ep_contexts": "1", "hexport__prepare": "0"}
    session(model, **common)
    session(other, **common, ep__stop_share_ep_contexts="1")
    wrapper = onnx.load(model.with_name("m_ctx.onnx"))
    wrapper.doc_string = "from another machine"
    elsewhere = small.save(wrapper, model.with_name("elsewhere_ctx.onnx"))
    with pytest.raises(SharedContextUnloadable):
        session(elsewhere, ep__share_ep_contexts="1")


def test_context_is_not_written_over_other_files(model: Path) -> None:
    entries: Any = {"ep__context_enable": "1", "hexport__prepare": "0"}
    with pytest.raises(ContextFileExists):
        session(model, **entries, ep__context_file_path=str(model))
    assert onnx.load(model).graph.node[0].op_type == "Conv"
    with pytest.raises(UsageError, match="no folder"):
        session(model, **entries, ep__context_file_path=str(model.parent / "none" / "m.onnx"))
    with pytest.raises(UsageError, match="bytes"):
        session(model.read_bytes(), **entries)


def test_model_as_bytes(model: Path) -> None:
    expected = session(model).run(None, ONES)[0]
    np.testing.assert_array_equal(session(model.read_bytes()).run(None, ONES)[0], expected)


def test_saver_records_and_returns_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = session(model, {**CHIP, "qnn_saver_path": "QnnSaver.dll"})
    with pytest.raises(SaverOnlyRecords):
        made.run(None, ONES)


class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self) -> None:
        self.left = [ONES, {"x": -ONES["x"]}]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def constant_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same with its initializers as Constant nodes, as many exporters write them."""
    made = [helper.make_node("Constant", [], [t.name], value=t) for t in proto.graph.initializer]
    del proto.graph.initializer[:]
    for node in made:
        proto.graph.node.insert(0, node)
    return proto


def unknown_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """An operator of com.microsoft in front, of whose result ONNX infers nothing, and a bias."""
    proto.graph.node[0].input[0] = "g"
    proto.graph.node[0].input.append("bias")
    proto.graph.initializer.append(small.constant("bias", np.ones(8, np.float32)))
    gelu = helper.make_node("FastGelu", ["x"], ["g"], name="gelu", domain="com.microsoft")
    proto.graph.node.insert(0, gelu)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


def softmax_of_doubles(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Exporters of numpy-like code leave some; the quantiser gives it a range, though it is not quantised."""
    proto.graph.node.extend(
        [
            helper.make_node("Cast", ["y"], ["d"], name="to_double", to=onnx.TensorProto.DOUBLE),
            helper.make_node("Softmax", ["d"], ["s"], name="softmax"),
            helper.make_node("Cast", ["s"], ["z"], name="to_float", to=onnx.TensorProto.FLOAT),
        ]
    )
    proto.graph.output.append(small.value("z", [1, 8, 16, 16]))
    return proto


@pytest.mark.parametrize("change", [constant_weights, unknown_types, softmax_of_doubles])
@pytest.mark.parametrize("preprocess", [True, False])
def test_quantiser_with_models_it_stops_at(tmp_path: Path, change: Any, preprocess: bool) -> None:
    path = small.save(change(small.conv_relu()), tmp_path / "m.onnx")
    if preprocess:
        assert qnn_preprocess_model(path, tmp_path / "p.onnx")
        path = tmp_path / "p.onnx"
    config = get_qnn_qdq_config(path, Reader(), activation_type=QuantType.QUInt16)
    quantize(path, tmp_path / "q.onnx", config)
    graph = onnx.load(tmp_path / "q.onnx").graph
    assert {t.name: t.data_type for t in graph.initializer}["w_quantized"] == onnx.TensorProto.UINT8
    run = onnxruntime.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"])
    plain = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run.run(None, ONES)[0], plain.run(None, ONES)[0], atol=0.3)


def test_import_is_light() -> None:
    code = "import sys, hexport.onnxruntime; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "onnxruntime" in loaded
    assert not loaded & {"onnx", "onnx_ir", "onnxscript", "onnxslim", "torch", "PIL", "onnxruntime_qnn"}


def test_the_rest_is_the_real_package() -> None:
    import onnxruntime as real
    import onnxruntime.quantization as real_quantization

    assert onnxruntime.OrtValue is real.OrtValue
    assert onnxruntime.quantization.QuantFormat is real_quantization.QuantFormat
    assert issubclass(onnxruntime.InferenceSession, real.InferenceSession)
    assert onnxruntime.get_available_providers()[0] == "QNNExecutionProvider"
    with pytest.raises(AttributeError, match="nonsense"):
        onnxruntime.nonsense  # noqa: B018 - the access is the test
