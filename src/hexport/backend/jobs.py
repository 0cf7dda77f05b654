"""The jobs a worker does: the only code of hexport that touches onnxruntime's QNN provider.

Runs in a child process. Nothing here decides anything; it calls, times, and reports.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hexport.backend.context_binary import read_context
from hexport.backend.requests import (
    AssignedNode,
    AssignedPart,
    InferredTensor,
    SessionReply,
    SessionRequest,
    ShapesReply,
    ShapesRequest,
)
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve

PROVIDER = "QNNExecutionProvider"
_VERBOSE = 0


def infer_shapes(arguments: dict[str, Any]) -> dict[str, Any]:
    """Every tensor's type as ONNX Runtime infers it.

    The basic optimisations fold shape arithmetic, without which most shapes stay unknown; they keep
    what is an output, and the model exposes every tensor as one.
    """
    ort = _onnxruntime()
    request = from_plain(ShapesRequest, arguments)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = ort.InferenceSession(
            _model_argument(request.model, request.data_folder, options),
            options,
            providers=["CPUExecutionProvider"],
        )
    except ort.capi.onnxruntime_pybind11_state.NotImplemented as error:
        # Loaded and type-checked, but the CPU has no kernel for some operator.
        return _plain(ShapesReply((), not_runnable=str(error)))
    except Exception as error:
        raise JobError("ModelRejected", str(error)) from error
    values = [*session.get_inputs(), *session.get_outputs()]
    return _plain(ShapesReply(tuple(InferredTensor(v.name, v.type, tuple(_dims(v.shape))) for v in values)))


def create_session(arguments: dict[str, Any]) -> dict[str, Any]:
    """A session on the QNN provider, with the provider's answer to every node."""
    ort = _onnxruntime()
    request = from_plain(SessionRequest, arguments)
    if request.run_once and _only_records(request.provider_options):
        raise JobError(
            "SaverOnlyRecords", "the Saver backend writes calls to a file; what it returns is not a result"
        )
    # The QNN libraries take their log level from the default logger, not from the session's.
    ort.set_default_logger_severity(_VERBOSE)
    options = ort.SessionOptions()
    options.log_severity_level = _VERBOSE
    for key, value in request.session_options.items():
        options.add_session_config_entry(key, value)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    _add_provider(ort, options, request.provider_options)
    started = time.perf_counter()
    try:
        session = ort.InferenceSession(
            _model_argument(request.model, request.data_folder, options),
            options,
            enable_fallback=0,  # or a provider that throws is replaced by the CPU without a word
        )
    except MemoryError:
        raise
    except Exception as error:
        raise JobError(_classify(str(error)), str(error)) from error
    seconds = time.perf_counter() - started
    parts = tuple(
        AssignedPart(part.ep_name, tuple(AssignedNode(n.name, n.op_type, n.domain) for n in part.get_nodes()))
        for part in session.get_provider_graph_assignment_info()
    )
    values = _run_on_ones(session) if request.run_once else ()
    return _plain(SessionReply(tuple(session.get_providers()), parts, seconds, values))


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise JobError("EpCreationFailed", f"onnxruntime cannot be imported: {error}") from error
    return onnxruntime


def _add_provider(ort: Any, options: Any, provider_options: dict[str, str]) -> None:
    try:
        import onnxruntime_qnn
    except ImportError as error:
        raise JobError("EpCreationFailed", f"onnxruntime-qnn cannot be imported: {error}") from error
    try:
        ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    except Exception as error:
        if "already" not in str(error):
            raise JobError("EpCreationFailed", str(error)) from error
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        raise JobError("EpCreationFailed", "the provider library registered, but offers no device")
    options.add_provider_for_devices(devices[:1], provider_options)


def _only_records(options: dict[str, str]) -> bool:
    return options.get("backend_type") == "saver" or "qnn_saver_path" in options


def _classify(message: str) -> str:
    if "Error creating execution provider" in message:
        return "EpCreationFailed"
    if "INVALID_PROTOBUF" in message or "INVALID_GRAPH" in message:
        return "ModelRejected"
    return "CompileFailed"


def _model_argument(model: str, data_folder: str, options: Any) -> str | bytes:
    """The path, or the bytes when weights lie in the original's folder and not beside the copy."""
    if not data_folder:
        return model
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", data_folder)
    return Path(model).read_bytes()


def _dims(shape: list[Any]) -> list[int | str | None]:
    return [dim if isinstance(dim, (int, str)) else None for dim in shape]


def _run_on_ones(session: Any) -> tuple[float, ...]:
    import numpy as np

    feeds = {value.name: np.ones(value.shape, np.float32) for value in session.get_inputs()}
    return tuple(float(x) for x in session.run(None, feeds)[0].ravel())


def _plain(record: object) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(record)
    return plain


if __name__ == "__main__":
    serve({"infer_shapes": infer_shapes, "create_session": create_session, "read_context": read_context})
