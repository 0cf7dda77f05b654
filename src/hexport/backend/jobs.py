"""The jobs a worker does with ONNX Runtime and its QNN provider.

Runs in a child process. Nothing here decides anything; it calls, times, and reports.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hexport.backend.context_binary import read_context
from hexport.backend.requests import (
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
from hexport.backend.sessions import (
    DATA_FOLDER,
    add_provider,
    assigned_parts,
    classify,
    import_onnxruntime,
    make_options,
    make_session,
    model_argument,
    refuse_recorder,
)
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve

_custom_ops: list[str] = []
"""Libraries of operators that every session of this worker gets."""


def load_custom_ops(arguments: dict[str, Any]) -> dict[str, Any]:
    """Give the operators of one more library to every session from now on."""
    ort = import_onnxruntime()
    library: str = arguments["library"]
    try:
        ort.SessionOptions().register_custom_ops_library(library)
    except Exception as error:
        raise JobError("CustomOpsUnusable", str(error)) from error
    _custom_ops.append(library)
    return {}


def infer_shapes(arguments: dict[str, Any]) -> dict[str, Any]:
    """Every tensor's type as ONNX Runtime infers it.

    The basic optimisations fold shape arithmetic, without which most shapes stay unknown; they keep
    what is an output, and the model exposes every tensor as one.
    """
    ort = import_onnxruntime()
    request = from_plain(ShapesRequest, arguments)
    options = _with_custom_ops(ort.SessionOptions())
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = ort.InferenceSession(
            model_argument(request.model, request.data_folder, options),
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
    ort = import_onnxruntime()
    request = from_plain(SessionRequest, arguments)
    if request.run_once or request.samples:
        refuse_recorder(request.provider_options)
    started = time.perf_counter()
    options = _with_custom_ops(make_options(ort, request.session_options, verbose=True))
    session = make_session(ort, request.model, request.data_folder, request.provider_options, options)
    seconds = time.perf_counter() - started
    values = _run_on_ones(session) if request.run_once else ()
    names = _run_samples(session, request.samples) if request.samples else ()
    return _plain(
        SessionReply(tuple(session.get_providers()), assigned_parts(session), seconds, values, names)
    )


def run_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """One session, run on every sample."""
    ort = import_onnxruntime()
    request = from_plain(RunRequest, arguments)
    refuse_recorder(request.provider_options)
    started = time.perf_counter()
    options = _with_custom_ops(make_options(ort, request.session_options, verbose=False))
    if not request.optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = make_session(ort, request.model, request.data_folder, request.provider_options, options)
    seconds = time.perf_counter() - started
    return _plain(RunReply(_run_samples(session, request.samples), assigned_parts(session), seconds))


def optimize_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """ONNX Runtime's basic level, saved: the same for every processor."""
    ort = import_onnxruntime()
    request = from_plain(OptimizeRequest, arguments)
    options = _with_custom_ops(ort.SessionOptions())
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
    ort = import_onnxruntime()
    request = from_plain(CompileRequest, arguments)
    options = _with_custom_ops(make_options(ort, request.session_options, verbose=True))
    add_provider(ort, options, request.provider_options)
    if request.data_folder:
        options.add_session_config_entry(DATA_FOLDER, request.data_folder)
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
        raise JobError(classify(str(error)), str(error)) from error
    return _plain(CompileReply(time.perf_counter() - started))


def _with_custom_ops(options: Any) -> Any:
    for library in _custom_ops:
        options.register_custom_ops_library(library)
    return options


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
            "load_custom_ops": load_custom_ops,
            "infer_shapes": infer_shapes,
            "create_session": create_session,
            "compile_model": compile_model,
            "run_model": run_model,
            "optimize_model": optimize_model,
            "read_context": read_context,
        }
    )
