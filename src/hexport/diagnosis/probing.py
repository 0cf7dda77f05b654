"""Starting every backend for real on a tiny model, each in its own worker, two at a time."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexport.backend.calling import MODULE, PROVIDER
from hexport.backend.native_log import read_native_log
from hexport.backend.requests import SessionReply, SessionRequest
from hexport.diagnosis.machine import Machine
from hexport.model.tiny import tiny_model
from hexport.records import from_plain, to_plain
from hexport.toolchain import JobFailed, Limits, Worker, WorkerError
from hexport.toolchain.kept_log import keep_logs

JOBS = "hexport.diagnosis.jobs"
_PLAIN = "plain"
"""The worker that is asked without a session."""
BACKENDS = ("htp", "gpu", "cpu", "saver", "ir")
_SOC_MODEL = "57"
"""Any chip with float; without one the simulator computes in fp32, which no NPU does."""


@dataclass(frozen=True)
class Answer:
    """How one backend took the tiny model."""

    backend: str
    created: bool = False
    """A session with the QNN provider came to be, so the plugin at least loads."""
    on_backend: bool = False
    """The backend took every node. Otherwise the CPU would compute, and compute right."""
    values: tuple[float, ...] = ()
    """What came out for ones; empty when it was not run."""
    failure: str = ""
    """The backend's own words."""
    error: WorkerError | None = None
    detail: str = ""
    """The GPU library's reason, which it only logs."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Probes:
    """Everything the workers answered."""

    answers: Mapping[str, Answer]
    worker_origin: str = ""
    """Which file ``import onnxruntime`` loads in a worker."""
    worker_error: WorkerError | None = None
    """Set when not even an empty worker could be asked."""
    system_error: str = ""
    """Why the library that reads context binaries does not load; empty when it does or was not tried."""


def probe_all(
    machine: Machine,
    *,
    system_library: Path | None,
    backend_path: str | None,
    limits: Limits,
    native_log: Path | None,
) -> Probes:
    """Ask every backend, and ``backend_path`` as one more if given."""
    with tempfile.TemporaryDirectory(prefix="hexport-doctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        wanted: dict[str, dict[str, str]] = {backend: {"backend_type": backend} for backend in BACKENDS}
        if backend_path:
            wanted["given"] = {"backend_path": backend_path}
        with ThreadPoolExecutor(2) as pool:
            # The slowest first, so that the others fit beside it.
            sessions = {
                backend: pool.submit(_ask, machine, backend, options, folder, limits)
                for backend, options in wanted.items()
            }
            plain = pool.submit(_ask_plain, system_library, folder, limits)
            probes = replace(plain.result(), answers={key: job.result() for key, job in sessions.items()})
        if native_log is not None:
            keep_logs({name: folder / name / "native.log" for name in (*wanted, _PLAIN)}, native_log)
    return probes


def _ask(machine: Machine, backend: str, options: dict[str, str], folder: Path, limits: Limits) -> Answer:
    workdir = folder / backend
    workdir.mkdir()
    log = workdir / "native.log"
    model = workdir / "tiny.onnx"
    model.write_bytes(tiny_model())
    try:
        with Worker(MODULE, log, limits=limits) as worker:
            plain = worker.call("create_session", to_plain(_request(machine, backend, options, model)))
    except WorkerError as error:
        return Answer(backend, error=error)
    reply = from_plain(SessionReply, plain)
    return Answer(
        backend,
        created=PROVIDER in reply.providers,
        on_backend=bool(reply.parts) and all(part.provider == PROVIDER for part in reply.parts),
        values=reply.values,
        failure=read_native_log(log).setup_failure,
        detail=_gpu_error(log),
        seconds=reply.seconds,
    )


def _request(machine: Machine, backend: str, options: dict[str, str], model: Path) -> SessionRequest:
    htp = backend in ("htp", "given")
    provider, session = dict(options), {}
    if htp and not machine.may_have_npu:
        provider["soc_model"] = _SOC_MODEL
        if not machine.simulates:
            # Windows x86_64 can compile for the NPU but has nothing to run the result on.
            session = {"ep.context_enable": "1", "ep.context_file_path": str(model.with_name("context.onnx"))}
    # Saver only records and IR only writes: what they give back as numbers means nothing.
    run = backend in ("gpu", "cpu") or (htp and (machine.may_have_npu or machine.simulates))
    return SessionRequest(str(model), "", provider, session, run_once=run)


def _gpu_error(log: Path) -> str:
    found = re.search(r"GPU ERROR: (.*)", log.read_text("utf-8", errors="replace"))
    return found[1].strip() if found else ""


def _ask_plain(system_library: Path | None, folder: Path, limits: Limits) -> Probes:
    """What needs a worker but no session."""
    log = folder / _PLAIN / "native.log"
    log.parent.mkdir()
    try:
        with Worker(JOBS, log, limits=limits) as worker:
            found = Probes({}, worker_origin=str(worker.call("locate_module", {})["origin"]))
            if system_library is None:
                return found
            return replace(found, system_error=_open(worker, {"path": str(system_library)}))
    except WorkerError as error:
        return Probes({}, worker_error=error)


def _open(worker: Worker, arguments: dict[str, Any]) -> str:
    try:
        worker.call("open_system_library", arguments)
    except JobFailed as error:
        return error.text
    except WorkerError as error:
        return error.what
    return ""
