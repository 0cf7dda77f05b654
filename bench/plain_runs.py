"""Starting ``plain_qnn.py`` on a model, and what came of it: loaded, refused, died or hung; who runs what."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexport.backend.op_trace import OpTrace, read_op_trace
from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.model import read
from hexport.observe.placement import place

PROVIDER = "QNNExecutionProvider"
CHILD = Path(__file__).with_name("plain_qnn.py")
# Rounding results to fp16 alone leaves about 74 dB; what is this near to the CPU's was computed in fp32.
FP32_DB = 90.0


@dataclass(frozen=True)
class PlainCall:
    """One way of calling onnxruntime-qnn."""

    call: str = "devices"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    session_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlainRun:
    """What one call gave, in the user's nodes."""

    outcome: str
    """``loaded``, ``error`` (an exception), ``crash`` or ``timeout``."""
    error: str = ""
    seconds: float = 0.0
    says: str = ""
    """``NPU`` if the session lists the QNN provider, else ``CPU``: what the user can see."""
    warnings: tuple[str, ...] = ()
    npu: int = 0
    cpu: int = 0
    partitions: int = 0
    exact: bool = False
    garbage: bool = False
    """NaN or infinity where the CPU has numbers."""
    sqnr_db: float | None = None
    run_problem: str = ""
    """Why it could be loaded but gave no result, if so: an error, a crash, or the time limit."""

    @property
    def kind(self) -> str:
        """What the session really is: ``whole``, ``pieces``, ``cpu``, or how it failed."""
        if self.outcome != "loaded":
            return self.outcome
        if not self.npu:
            return "cpu"
        return "whole" if self.partitions == 1 and not self.cpu else "pieces"

    @property
    def measured(self) -> bool:
        """Whether it was run and compared."""
        return self.exact or self.garbage or self.sqnr_db is not None

    @property
    def in_fp32(self) -> bool:
        """Whether the simulator computed all of it in fp32, which no NPU does: the numbers are too good."""
        return self.kind == "whole" and self.sqnr_db is not None and self.sqnr_db >= FP32_DB


def run_plain(model: Path, feeds: Path | None, call: PlainCall, workdir: Path, limit: float) -> PlainRun:
    """Call plain onnxruntime-qnn on ``model`` in a process of its own."""
    request, answer = workdir / "request.json", workdir / "answer.json"
    answer.unlink(missing_ok=True)
    asked = {"model": str(model), "feeds": feeds and str(feeds), **vars(call)}
    request.write_text(json.dumps(asked), "utf-8")
    started = time.perf_counter()
    code = _run_child([sys.executable, str(CHILD), str(request), str(answer)], limit)
    seconds = time.perf_counter() - started
    said: dict[str, Any] = (
        json.loads(answer.read_text("utf-8")) if answer.exists() else {"stage": "not started"}
    )
    end = "" if code == 0 else "timeout" if code is None else "crash"
    words = {"": "", "timeout": f"no answer in {limit:g} s", "crash": f"process ended: {_name(code)}"}[end]
    if said["stage"] == "refused":
        return PlainRun("error", one_line(said["error"]), said["seconds"])
    if said["stage"] in ("not started", "started"):
        return PlainRun(end or "crash", words, seconds)
    return _loaded(model, said, words, _trace(call))


def _run_child(command: list[str], limit: float) -> int | None:
    """The exit code, or None when the time was over."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _name(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name


def _trace(call: PlainCall) -> OpTrace:
    """What leads nodes that onnxruntime fused back to the user's, where the call asked for it."""
    file = Path(call.provider_options.get("framework_op_trace_dir", "")) / "qnn_op_trace.json"
    asked = "framework_op_trace_dir" in call.provider_options
    return read_op_trace(file) if asked and file.exists() else OpTrace((), (), {})


def _loaded(model: Path, said: dict[str, Any], words: str, trace: OpTrace) -> PlainRun:
    parts = [
        AssignedPart(part["provider"], tuple(AssignedNode(*node) for node in part["nodes"]))
        for part in said["parts"]
    ]
    # The user's own nodes, as `hexport check` counts them; what onnxruntime adds counts only on the CPU.
    placement = place(read(model).graph, parts, trace)
    fell_back = PROVIDER in said["providers"] and PROVIDER not in said.get("providers_after_run", [PROVIDER])
    return PlainRun(
        "loaded",
        seconds=said["seconds"],
        says="NPU" if PROVIDER in said["providers"] else "CPU",
        warnings=tuple(said["warnings"]),
        # onnxruntime names what it makes: a node without a name is the user's too.
        npu=len(placement.on_npu) + sum(not node.name for node in placement.made_npu),
        cpu=len(placement.cpu) + len(placement.made_cpu),
        partitions=sum(part.provider == PROVIDER for part in parts),
        exact=said.get("exact", False),
        garbage=said.get("garbage", False),
        sqnr_db=said.get("sqnr_db"),
        run_problem=words or one_line(said.get("run_error", "")) or ("went to the CPU in run()" * fell_back),
    )


def one_line(text: str, longest: int = 150) -> str:
    """The message without onnxruntime's frame and without this machine's paths."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : ", "", " ".join(text.split()))
    text = re.sub(r"(?<![\w.])/[^\s:]*/", "…/", text)
    return text if len(text) <= longest else text[: longest - 1] + "…"
