"""The reference: a trusted model run on the CPU, in this process.

Only for models hexport itself made or pinned. What a user brings is run in a worker, because even the
CPU provider can be crashed by a broken file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ERRORS_ONLY = 3


def cpu_session(model: Path, *, optimize: bool = True, threads: int = 0, hoard: bool = True) -> Any:
    """An onnxruntime session on the CPU, with onnxruntime's telemetry off.

    ``optimize=False`` for QDQ models, whose results onnxruntime's fusions shift; ``hoard=False`` gives memory
    back at once and keeps no second copy of weights: for few runs, or many large outputs.
    """
    # It must be set before the library is loaded; a user's own setting stays.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = hoard
    if not hoard:
        # Weights packed for a faster product are a second copy of them.
        options.add_session_config_entry("session.disable_prepacking", "1")
    # Threads that wait by spinning take the cores from the compiler's workers beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def run_each(session: Any, samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outputs by name, sample by sample."""
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(None, dict(sample)), strict=True)) for sample in samples]
