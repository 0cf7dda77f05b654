"""The reference: a trusted model run on the CPU, in this process.

Only for models hexport itself made or pinned. What a user brings is run in a worker, because even the
CPU provider can be crashed by a broken file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def cpu_session(model: Path) -> Any:
    """An onnxruntime session on the CPU, with onnxruntime's telemetry off."""
    # It must be set before the library is loaded; a user's own setting stays.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    return ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
