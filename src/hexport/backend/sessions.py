"""ONNX Runtime sessions, on the QNN provider or on the CPU alone: one code for workers and the runtime.

A fault is a :class:`JobError` that names the error type: in a worker it travels to the parent by that name,
in the runtime it is raised as that type.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.toolchain.serving import JobError

PROVIDER = "QNNExecutionProvider"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
_VERBOSE, _WARNING = 0, 2
_REGISTERING = threading.Lock()


def import_onnxruntime() -> Any:
    """onnxruntime, without its telemetry: from 1.29 on the Linux wheel opens a store when it is imported."""
    if "onnxruntime" not in sys.modules:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise JobError("EpCreationFailed", f"onnxruntime cannot be imported: {error}") from error
    return onnxruntime


def make_options(ort: Any, session_options: dict[str, str], *, verbose: bool) -> Any:
    """Options of a worker's session, which has the process to itself."""
    # The QNN libraries take their log level from the default logger, not from the session's.
    ort.set_default_logger_severity(_VERBOSE if verbose else _WARNING)
    options = ort.SessionOptions()
    options.log_severity_level = _VERBOSE if verbose else _WARNING
    add_entries(options, session_options)
    # Threads that wait by spinning take the cores from the workers beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def add_entries(options: Any, entries: dict[str, str]) -> None:
    for key, value in entries.items():
        options.add_session_config_entry(key, value)


def make_session(
    ort: Any, model: str, data_folder: str, provider_options: dict[str, str], options: Any
) -> Any:
    """A session on the QNN provider, or on the CPU alone when there are no provider options."""
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    where: dict[str, Any] = {"providers": ["CPUExecutionProvider"]}
    if provider_options:
        add_provider(ort, options, provider_options)
        where = {"enable_fallback": 0}  # or a provider that throws is replaced by the CPU without a word
    try:
        return ort.InferenceSession(model_argument(model, data_folder, options), options, **where)
    except MemoryError:
        raise
    except Exception as error:
        kind = classify(str(error)) if provider_options else "ModelRejected"
        raise JobError(kind, str(error)) from error


def assigned_parts(session: Any) -> tuple[AssignedPart, ...]:
    """Which provider took which nodes."""
    return tuple(
        AssignedPart(part.ep_name, tuple(AssignedNode(n.name, n.op_type, n.domain) for n in part.get_nodes()))
        for part in session.get_provider_graph_assignment_info()
    )


def refuse_recorder(options: dict[str, str]) -> None:
    """The Saver's results are no results."""
    if options.get("backend_type") == "saver" or "qnn_saver_path" in options:
        raise JobError(
            "SaverOnlyRecords", "the Saver backend writes calls to a file; what it returns is no result"
        )


def add_provider(ort: Any, options: Any, provider_options: dict[str, str]) -> None:
    """Register the plugin, once a process, and ask for it."""
    try:
        import onnxruntime_qnn
    except ImportError as error:
        raise JobError("EpCreationFailed", f"onnxruntime-qnn cannot be imported: {error}") from error
    with _REGISTERING:
        try:
            ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        except Exception as error:
            if "already" not in str(error):
                raise JobError("EpCreationFailed", str(error)) from error
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        raise JobError("EpCreationFailed", "the provider library registered, but offers no device")
    options.add_provider_for_devices(devices[:1], provider_options)


def classify(message: str) -> str:
    """The error type that a message of ONNX Runtime stands for."""
    if "Error creating execution provider" in message:
        return "EpCreationFailed"
    if "INVALID_PROTOBUF" in message or "INVALID_GRAPH" in message:
        return "ModelRejected"
    return "CompileFailed"


def model_argument(model: str, data_folder: str, options: Any) -> str | bytes:
    """The path, or the bytes when weights lie in the original's folder and not beside the copy."""
    if not data_folder:
        return model
    options.add_session_config_entry(DATA_FOLDER, data_folder)
    return Path(model).read_bytes()
