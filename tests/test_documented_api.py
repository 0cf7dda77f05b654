"""Every Python snippet of ONNX Runtime's pages on QNN, with the import and the file names changed, no more.

The pages are those of onnxruntime 1.16 and 1.20 and Qualcomm's on the GPU backend. Comments are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hexport.onnxruntime as onnxruntime
import small_models as small
from hexport.onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from hexport.onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

pytestmark = pytest.mark.usefixtures("cache")

ort = onnxruntime
QNN: Any = {"providers": ["QNNExecutionProvider"], "provider_options": [{"backend_path": "QnnHtp.dll"}]}
FEEDS = {"input": np.ones((1, 3, 224, 224), np.float32)}

pytestmark = pytest.mark.filterwarnings("ignore:no soc_model was given")


def small_net() -> onnx.ModelProto:
    """The size of the documentation's input, and next to no work."""
    random = np.random.default_rng(3)
    weight = random.normal(size=(8, 3, 8, 8)).astype(np.float32) / 14
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["a"], name="conv", strides=[8, 8]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["output"], name="pool"),
    ]
    inputs, outputs = [small.value("input", [1, 3, 224, 224])], [small.value("output", [1, 8, 1, 1])]
    model = small.model(nodes, inputs, outputs, [small.constant("w", weight)])
    model.metadata_props.add(key="author", value="nobody")
    return model


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.save(small_net(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)


def truth(model: str = "model.onnx") -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, FEEDS)[0]
    return result


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def decibels(got: np.ndarray, expected: np.ndarray) -> float:
    noise = float(np.sum((got.astype(np.float64) - expected) ** 2))
    return float(10 * np.log10(float(np.sum(expected.astype(np.float64) ** 2)) / max(noise, 1e-30)))


class DataReader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self, model_path: str) -> None:
        self.enum_data: Any = None
        session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
        inputs = session.get_inputs()
        self.data_list = []
        for _ in range(10):
            input_data = {inp.name: np.random.random(inp.shape).astype(np.float32) for inp in inputs}
            self.data_list.append(input_data)
        self.datasize = len(self.data_list)

    def get_next(self) -> Any:
        if self.enum_data is None:
            self.enum_data = iter(self.data_list)
        return next(self.enum_data, None)

    def rewind(self) -> None:
        self.enum_data = None


def quantize_model(activation_type: Any = QuantType.QUInt16) -> None:
    input_model_path = "model.onnx"
    output_model_path = "model.qdq.onnx"
    my_data_reader = DataReader(input_model_path)
    preproc_model_path = "model.preproc.onnx"
    model_changed = qnn_preprocess_model(input_model_path, preproc_model_path)
    model_to_quantize = preproc_model_path if model_changed else input_model_path
    qnn_config = get_qnn_qdq_config(
        model_to_quantize, my_data_reader, activation_type=activation_type, weight_type=QuantType.QUInt8
    )
    quantize(model_to_quantize, output_model_path, qnn_config)


def test_000_usage() -> None:
    model_path = "model.onnx"
    sess = ort.InferenceSession(
        model_path, providers=["QNNExecutionProvider"], provider_options=[{"backend_path": "QnnHtp.dll"}]
    )
    assert sess.get_providers()[0] == "QNNExecutionProvider"
    got = sess.run(None, FEEDS)[0]
    assert decibels(got, truth()) > 40
    assert not np.array_equal(got, truth()), "fp16 differs from fp32 in its last digits"


def test_000_context_cache_of_the_first_releases() -> None:
    options = {"backend_path": "libQnnHtp.so", "qnn_context_cache_enable": "1"}
    with pytest.warns(onnxruntime.QnnWarning, match="ep.context_enable"):
        ort.InferenceSession("model.onnx", providers=["QNNExecutionProvider"], provider_options=[options])
    assert Path("model_ctx.onnx").exists()


def test_001_data_reader() -> None:
    reader = DataReader("model.onnx")
    first = reader.get_next()
    assert first["input"].shape == (1, 3, 224, 224)
    assert sum(1 for _ in iter(reader.get_next, None)) == reader.datasize - 1


def test_001_quantize_model() -> None:
    quantize_model()
    graph = onnx.load("model.qdq.onnx").graph
    weights = {t.name: t.data_type for t in graph.initializer if t.name.endswith("_quantized")}
    assert weights == {"w_quantized": onnx.TensorProto.UINT8}
    points = {t.name: t.data_type for t in graph.initializer if t.name == "input_zero_point"}
    assert points == {"input_zero_point": onnx.TensorProto.UINT16}
    assert {p.key: p.value for p in onnx.load("model.preproc.onnx").metadata_props}["author"] == "nobody"


def test_001_run_qdq_model() -> None:
    quantize_model()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(
        "model.qdq.onnx",
        sess_options=options,
        providers=["QNNExecutionProvider"],
        provider_options=[{"backend_path": "QnnHtp.dll"}],
    )
    input0 = np.ones((1, 3, 224, 224), dtype=np.float32)
    result = session.run(None, {"input": input0})
    # Random calibration knows no input of ones, so it is the quantised model that is the measure.
    assert decibels(result[0], truth("model.qdq.onnx")) > 35
    assert not session.cpu_nodes


def test_001_context_enable() -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    made = onnxruntime.InferenceSession("model.onnx", options, **QNN)
    assert files() == ["model.onnx", "model_ctx.onnx", "model_ctx_qnn.bin"]
    expected = made.run(None, FEEDS)[0]
    Path("model.onnx").unlink()
    loaded = onnxruntime.InferenceSession("model_ctx.onnx", **QNN)
    np.testing.assert_array_equal(loaded.run(None, FEEDS)[0], expected)


def test_001_context_file_path() -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", "./model_a_ctx.onnx")
    for _ in range(2):  # the program is started again
        onnxruntime.InferenceSession("model.onnx", options, **QNN)
    assert files() == ["model.onnx", "model_a_ctx.onnx", "model_a_ctx_qnn.bin"]


def test_001_context_embed_mode() -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_embed_mode", "1")
    made = onnxruntime.InferenceSession("model.onnx", options, **QNN)
    assert files() == ["model.onnx", "model_ctx.onnx"]
    loaded = onnxruntime.InferenceSession("model_ctx.onnx", **QNN)
    np.testing.assert_array_equal(loaded.run(None, FEEDS)[0], made.run(None, FEEDS)[0])


def test_001_weight_sharing() -> None:
    """Two models into one binary, then two sessions that share it: the pages tell it in words."""
    Path("other.onnx").write_bytes(Path("model.onnx").read_bytes())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.share_ep_contexts", "1")
    expected = onnxruntime.InferenceSession("model.onnx", options, **QNN).run(None, FEEDS)[0]
    options.add_session_config_entry("ep.stop_share_ep_contexts", "1")
    onnxruntime.InferenceSession("other.onnx", options, **QNN)
    assert files() == [
        "model.onnx",
        "model_ctx.onnx",
        "other.onnx",
        "other_ctx.onnx",
        "other_ctx_qnn.bin",
    ]
    sharing = onnxruntime.SessionOptions()
    sharing.add_session_config_entry("ep.share_ep_contexts", "1")
    with pytest.warns(onnxruntime.QnnWarning, match="compiled apart"):
        sessions = [
            onnxruntime.InferenceSession(f"{name}_ctx.onnx", sharing, **QNN) for name in ("model", "other")
        ]
    for session in sessions:
        np.testing.assert_array_equal(session.run(None, FEEDS)[0], expected)


def eight_ops() -> onnx.ModelProto:
    """The graph of the page's figure: Op4_out is to have 16 bits among 8."""
    edges = {
        "Op1": ("Relu", ["input_0"]),
        "Op2": ("Sigmoid", ["input_1"]),
        "Op3": ("Sigmoid", ["Op1_out"]),
        "Op4": ("Relu", ["Op2_out"]),
        "Op5": ("Add", ["Op3_out", "Op4_out"]),
        "Op6": ("Relu", ["Op5_out"]),
        "Op7": ("Relu", ["Op2_out"]),
        "Op8": ("Relu", ["Op2_out"]),
    }
    nodes = [helper.make_node(op, ins, [f"{name}_out"], name=name) for name, (op, ins) in edges.items()]
    inputs = [small.value(f"input_{i}", [1, 16]) for i in range(2)]
    outputs = [small.value(f"Op{i}_out", [1, 16]) for i in (6, 7, 8)]
    return small.model(nodes, inputs, outputs)


def test_001_mixed_precision() -> None:
    float_model_path = small.save(eight_ops(), Path("eight.onnx"))
    data_reader = DataReader(str(float_model_path))
    initial_overrides = {"Op4_out": [{"quant_type": QuantType.QUInt16}]}
    qnn_config = get_qnn_qdq_config(
        float_model_path,
        data_reader,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QUInt8,
        init_overrides=initial_overrides,
    )
    fixed = qnn_config.extra_options["TensorQuantOverrides"]
    u8, u16 = QuantType.QUInt8, QuantType.QUInt16
    kinds = {name: (entry[0]["quant_type"], _converted(entry[0])) for name, entry in fixed.items()}
    assert {name: kinds[name] for name in ("Op2_out", "Op3_out", "Op4_out", "Op5_out")} == {
        "Op2_out": (u8, (u16, {"Op4"})),
        "Op3_out": (u8, (u16, {"Op5"})),
        "Op4_out": (u16, None),
        "Op5_out": (u16, (u8, {"Op6"})),
    }
    quantize(float_model_path, "eight.qdq.onnx", qnn_config)
    assert onnx.load("eight.qdq.onnx").graph.node


def _converted(entry: dict[str, Any]) -> tuple[Any, set[str]] | None:
    convert = entry.get("convert")
    return (convert["quant_type"], convert["recv_nodes"]) if convert else None


def test_002_gpu_session_without_adreno_says_so() -> None:
    ort.set_default_logger_severity(0)
    ort.set_default_logger_severity(2)
    options = ort.SessionOptions()
    with pytest.warns(ort.CpuFallbackWarning, match="gpu backend did not start"):
        session = ort.InferenceSession(
            "model.onnx",
            sess_options=options,
            providers=["QNNExecutionProvider"],
            provider_options=[{"backend_path": "QnnGpu.dll"}],
        )
    np.testing.assert_array_equal(session.run(None, FEEDS)[0], truth())


def test_002_gpu_session_that_may_not_fall_back() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(ort.CpuFallback, match="gpu backend did not start"):
        ort.InferenceSession(
            "model.onnx",
            sess_options=options,
            providers=["QNNExecutionProvider"],
            provider_options=[{"backend_path": "QnnGpu.dll"}],
        )
