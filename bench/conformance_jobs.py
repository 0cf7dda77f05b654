"""What a worker of the conformance benchmark does: run a test's model on the CPU or on the NPU's simulator.

Nothing of hexport's own rules is in here, and the provider is called as its documentation says.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from hexport.preparation.nearness import nearness
from hexport.toolchain.serving import JobError, serve

PROVIDER = "QNNExecutionProvider"
_SILENT = 4


def run_on_cpu(arguments: dict[str, Any]) -> dict[str, Any]:
    """The reference, without optimisations: what the model means, operator by operator."""
    options = _options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(arguments["model"], options, providers=["CPUExecutionProvider"])
        results = session.run(None, _feeds(arguments["inputs"]))
    except Exception as error:
        raise JobError("CpuCannot", str(error)) from error
    if any(not isinstance(result, np.ndarray) or result.dtype.kind not in "biuf" for result in results):
        raise JobError("CpuCannot", "an output is not a tensor of numbers")
    np.savez(arguments["outputs"], *results)
    return {}


def run_on_npu(arguments: dict[str, Any]) -> dict[str, Any]:
    """Run on the provider; gives who took how many nodes, and how near the outputs are to the CPU's."""
    options = _options()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.add_provider_for_devices(_devices(), {"backend_type": "htp", "soc_model": arguments["soc_model"]})
    try:
        session = ort.InferenceSession(arguments["model"], options, enable_fallback=0)
        parts = session.get_provider_graph_assignment_info()
        results = session.run(None, _feeds(arguments["inputs"]))
    except Exception as error:
        raise JobError("NpuFailed", str(error)) from error
    with np.load(arguments["expected"], allow_pickle=False) as expected:
        worst = nearness(
            {str(i): expected[f"arr_{i}"] for i in range(len(results))},
            {str(i): result for i, result in enumerate(results)},
        )
    on_npu = sum(len(part.get_nodes()) for part in parts if part.ep_name == PROVIDER)
    on_cpu = sum(len(part.get_nodes()) for part in parts if part.ep_name != PROVIDER)
    return {"on_npu": on_npu, "on_cpu": on_cpu, "db": None if worst == np.inf else worst}


@cache
def _devices() -> list[Any]:
    import onnxruntime_qnn

    ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    return [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER][:1]


def _options() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    return options


def _feeds(file: str) -> dict[str, np.ndarray]:
    with np.load(Path(file), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


if __name__ == "__main__":
    ort.set_default_logger_severity(_SILENT)
    serve({"run_on_cpu": run_on_cpu, "run_on_npu": run_on_npu})
