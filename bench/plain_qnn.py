"""Plain onnxruntime-qnn on one model, as its documentation says; run by ``check.py`` in a process of its own.

    python plain_qnn.py request.json answer.json

Nothing of hexport is in here: this is what a user would write, plus one recording switch
(``session.record_ep_graph_assignment_info``) that tells afterwards where the nodes went. The answer
is written after each stage, so that what was reached is known even when a later stage kills the
process.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import onnxruntime_qnn as qnn_ep

PROVIDER = "QNNExecutionProvider"


def main(request_file: Path, answer_file: Path) -> None:
    """Create the session, tell who got which node, run it once beside the CPU."""
    request = json.loads(request_file.read_text("utf-8"))
    answer: dict[str, Any] = {"stage": "started"}

    def tell(stage: str, **found: object) -> None:
        answer.update(found, stage=stage)
        whole = answer_file.with_suffix(".part")
        whole.write_text(json.dumps(answer), "utf-8")
        whole.replace(answer_file)

    tell("started")
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session = CALLS[request["call"]](request)
    except Exception as error:  # noqa: BLE001 - whatever a user would see
        tell("refused", seconds=time.perf_counter() - started, error=str(error))
        return
    tell(
        "loaded",
        seconds=time.perf_counter() - started,
        providers=session.get_providers(),
        warnings=[str(warning.message) for warning in caught],
        parts=_parts(session) if request["call"] == "devices" else [],
    )
    if request["feeds"]:
        tell("ran", **_run(session, request))


def _by_devices(request: dict[str, Any]) -> Any:
    """The way of the onnxruntime-qnn 2.x README; its backend_path=get_qnn_htp_path() gives the same."""
    ort.register_execution_provider_library(PROVIDER, qnn_ep.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in request["session_options"].items():
        options.add_session_config_entry(key, value)
    options.add_provider_for_devices(devices, {"backend_type": "htp", **request["provider_options"]})
    return ort.InferenceSession(request["model"], sess_options=options)


def _by_name(request: dict[str, Any]) -> Any:
    """The way of onnxruntime's own page on QNN, letter by letter (with Linux's name of the library)."""
    return ort.InferenceSession(
        request["model"], providers=[PROVIDER], provider_options=[{"backend_path": "libQnnHtp.so"}]
    )


def _by_name_registered(request: dict[str, Any]) -> Any:
    """The same after registering the plugin."""
    ort.register_execution_provider_library(PROVIDER, qnn_ep.get_library_path())
    return _by_name(request)


CALLS = {"devices": _by_devices, "name": _by_name, "name-registered": _by_name_registered}


def _parts(session: Any) -> list[dict[str, Any]]:
    return [
        {"provider": part.ep_name, "nodes": [[n.name, n.op_type, n.domain] for n in part.get_nodes()]}
        for part in session.get_provider_graph_assignment_info()
    ]


def _run(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Run once on a real input; how far from the CPU's fp32 the worst output is."""
    with np.load(request["feeds"]) as arrays:
        feeds = dict(arrays)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    cpu = ort.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    expected = cpu.run(None, feeds)
    try:
        outputs = session.run(None, feeds)
    except Exception as error:  # noqa: BLE001 - whatever a user would see
        return {"run_error": str(error)}
    found = [_sqnr(e, o) for e, o in zip(expected, outputs, strict=True)]
    worst = min(found, default=math.inf)
    return {
        "exact": worst == math.inf,
        "garbage": worst == -math.inf,
        "sqnr_db": worst if math.isfinite(worst) else None,
        "providers_after_run": session.get_providers(),
    }


def _sqnr(expected: Any, output: Any) -> float:
    """Signal to noise in dB: inf when equal, -inf when another shape or no numbers came out."""
    if np.shape(expected) != np.shape(output):
        return -math.inf
    if np.array_equal(expected, output, equal_nan=np.asarray(expected).dtype.kind == "f"):
        return math.inf
    signal = np.asarray(expected, np.float64)
    noise = signal - np.asarray(output, np.float64)
    with np.errstate(all="ignore"):
        ratio = float(10 * np.log10(np.sum(signal**2) / np.sum(noise**2)))
    return ratio if math.isfinite(ratio) else -math.inf


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
