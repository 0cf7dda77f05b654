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
    CompileReply,
    CompileRequest,
    InferredTensor,
    OptimizeRequest,
    RunReply,
    RunRequest,
    SampleFiles,
    SessionReply,
    SessionRequest,
    ShapesReply,
    ShapesRequest,
)
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve

PROVIDER = "QNNExecutionProvider"
_VERBOSE, _WARNING = 0, 2
_DATA_FOLDER = "session.model_external_initializers_file_folder_path"


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
    if request.run_once or request.samples:
        _refuse_recorder(request.provider_options)
    started = time.perf_counter()
    session = _session(
        ort,
        request.model,
        request.data_folder,
        request.provider_options,
        request.session_options,
        verbose=True,
    )
    seconds = time.perf_counter() - started
    values = _run_on_ones(session) if request.run_once else ()
    names = _run_samples(session, request.samples) if request.samples else ()
    return _plain(SessionReply(tuple(session.get_providers()), _parts(session), seconds, values, names))


def run_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """One session, run on every sample."""
    ort = _onnxruntime()
    request = from_plain(RunRequest, arguments)
    _refuse_recorder(request.provider_options)
    started = time.perf_counter()
    session = _session(
        ort,
        request.model,
        request.data_folder,
        request.provider_options,
        request.session_options,
        optimize=request.optimize,
    )
    seconds = time.perf_counter() - started
    return _plain(RunReply(_run_samples(session, request.samples), _parts(session), seconds))


def optimize_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """ONNX Runtime's basic level, saved: the same for every processor."""
    ort = _onnxruntime()
    request = from_plain(OptimizeRequest, arguments)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = request.output
    try:
        ort.InferenceSession(request.model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise JobError("ModelRejected", str(error)) from error
    return {}


def compile_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """The model with its NPU parts compiled, by ONNX Runtime's own compiler API.

    The optimisation level is the sessions' default and not the compiler's, which is none: what was checked
    and measured in sessions is what shall be compiled.
    """
    ort = _onnxruntime()
    request = from_plain(CompileRequest, arguments)
    options = _options(ort, request.session_options, verbose=True)
    _add_provider(ort, options, request.provider_options)
    if request.data_folder:
        options.add_session_config_entry(_DATA_FOLDER, request.data_folder)
    started = time.perf_counter()
    try:
        ort.ModelCompiler(
            options,
            request.model,
            embed_compiled_data_into_model=request.embed,
            graph_optimization_level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        ).compile_to_file(request.output)
    except MemoryError:
        raise
    except Exception as error:
        raise JobError(_classify(str(error)), str(error)) from error
    return _plain(CompileReply(time.perf_counter() - started))


def _options(ort: Any, session_options: dict[str, str], *, verbose: bool) -> Any:
    # The QNN libraries take their log level from the default logger, not from the session's.
    ort.set_default_logger_severity(_VERBOSE if verbose else _WARNING)
    options = ort.SessionOptions()
    options.log_severity_level = _VERBOSE if verbose else _WARNING
    for key, value in session_options.items():
        options.add_session_config_entry(key, value)
    return options


def _session(
    ort: Any,
    model: str,
    data_folder: str,
    provider_options: dict[str, str],
    session_options: dict[str, str],
    *,
    optimize: bool = True,
    verbose: bool = False,
) -> Any:
    """A session on the QNN provider, or on the CPU alone when there are no provider options."""
    options = _options(ort, session_options, verbose=verbose)
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # Threads that wait by spinning take the cores from the workers beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    where: dict[str, Any] = {"providers": ["CPUExecutionProvider"]}
    if provider_options:
        _add_provider(ort, options, provider_options)
        where = {"enable_fallback": 0}  # or a provider that throws is replaced by the CPU without a word
    try:
        return ort.InferenceSession(_model_argument(model, data_folder, options), options, **where)
    except MemoryError:
        raise
    except Exception as error:
        kind = _classify(str(error)) if provider_options else "ModelRejected"
        raise JobError(kind, str(error)) from error


def _run_samples(session: Any, samples: SampleFiles) -> tuple[str, ...]:
    """Write the results of every sample; gives the names of the outputs, in the order of the arrays."""
    import numpy as np

    for number in range(samples.count):
        with np.load(Path(samples.inputs) / f"{number}.npz", allow_pickle=False) as arrays:
            feeds = {name: arrays[f"arr_{i}"] for i, name in enumerate(samples.input_names)}
        try:
            results = session.run(None, feeds)
        except Exception as error:
            raise JobError("RunFailed", f"sample {number}: {error}") from error
        np.savez(Path(samples.outputs) / f"{number}.npz", *results)
    return tuple(output.name for output in session.get_outputs())


def _parts(session: Any) -> tuple[AssignedPart, ...]:
    return tuple(
        AssignedPart(part.ep_name, tuple(AssignedNode(n.name, n.op_type, n.domain) for n in part.get_nodes()))
        for part in session.get_provider_graph_assignment_info()
    )


def _refuse_recorder(options: dict[str, str]) -> None:
    if options.get("backend_type") == "saver" or "qnn_saver_path" in options:
        raise JobError(
            "SaverOnlyRecords", "the Saver backend writes calls to a file; what it returns is no result"
        )


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
    options.add_session_config_entry(_DATA_FOLDER, data_folder)
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
    serve(
        {
            "infer_shapes": infer_shapes,
            "create_session": create_session,
            "compile_model": compile_model,
            "run_model": run_model,
            "optimize_model": optimize_model,
            "read_context": read_context,
        }
    )
