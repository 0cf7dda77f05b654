"""The proof that a toolchain works: a tiny graph, compiled and run in workers of its interpreter."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hexport.diagnosis.backends import works
from hexport.diagnosis.machine import Machine, normal_arch, this_machine
from hexport.diagnosis.probing import Answer, probe_all
from hexport.environments.asking import Sight
from hexport.environments.failures import ToolchainBroken
from hexport.environments.place import data_root
from hexport.environments.record import BackendState, Toolchain
from hexport.environments.requirements import EXECUTORCH
from hexport.toolchain import Limits, Worker, WorkerError, using

_LIMITS = Limits(seconds=300.0)
_MAIN = ("htp", EXECUTORCH)
"""What a toolchain is for; the other backends are told, but may be missing."""


def proved(toolchain: Toolchain, sight: Sight) -> Toolchain:
    """The toolchain with what its backends did, if its main one works."""
    tested = examined(toolchain, sight)
    if tested.failure:
        raise ToolchainBroken(
            f"{tested.title} does not work",
            why=tested.failure,
            next="nothing was kept; another release may work: hexport doctor --suggest",
        )
    return tested


def examined(toolchain: Toolchain, sight: Sight) -> Toolchain:
    """The same, with ``failure`` set when it does not work."""
    if EXECUTORCH in toolchain.packages:
        states: tuple[BackendState, ...] = (_run_executorch(toolchain),)
    else:
        states = _run_backends(toolchain, sight)
    failure = next((f"{s.backend}: {s.why}" for s in states if s.backend in _MAIN and s.state != "works"), "")
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(toolchain, backends=states, verified=when, failure=failure)


def _run_backends(toolchain: Toolchain, sight: Sight) -> tuple[BackendState, ...]:
    machine = _machine(sight.platform)
    with using(toolchain.interpreter):
        probes = probe_all(machine, system_library=None, backend_path=None, limits=_LIMITS, native_log=None)
    return tuple(_state(answer, sight) for answer in probes.answers.values())


def _machine(platform: str) -> Machine:
    """This machine, as the toolchain's interpreter sees it."""
    return replace(this_machine(data_root()), python_arch=normal_arch(platform.partition("-")[2]))


def _state(answer: Answer, sight: Sight) -> BackendState:
    if works(answer):
        return BackendState(answer.backend, "works")
    library = f"Qnn{answer.backend.capitalize()}"
    if library not in sight.libraries:
        return BackendState(answer.backend, "absent", f"the package has no {library}")
    if answer.error is not None:
        return BackendState(answer.backend, "fails", f"{answer.error.what}: {answer.error.why}".strip(": "))
    reason = answer.detail or answer.failure or ("it computes wrongly" if answer.on_backend else "")
    return BackendState(answer.backend, "fails", reason or "it took no node of the graph")


def _run_executorch(toolchain: Toolchain) -> BackendState:
    """Lower a module for the NPU and run it in the simulator."""
    with tempfile.TemporaryDirectory(prefix="hexport-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "native.log")
        module = "hexport.environments.executorch_jobs"
        try:
            with Worker(module, log, limits=_LIMITS, python=toolchain.interpreter) as worker:
                worker.call("lower_and_run", {})
        except WorkerError as error:
            return BackendState(EXECUTORCH, "fails", f"{error.what}: {error.why}".strip(": "))
    return BackendState(EXECUTORCH, "works")
