"""``load``: from a package to a session, with the core install only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hexport.packaging import open_package
from hexport.runtime.choosing import AUTO, CPU, choose
from hexport.runtime.device import Device, this_device
from hexport.runtime.engine import Engine, InProcess
from hexport.runtime.isolated import Isolated
from hexport.runtime.options import Tuning, absolute
from hexport.runtime.planning import Plan
from hexport.runtime.session import Session
from hexport.toolchain import Limits

__all__ = ["Session", "load"]

_LOG = logging.getLogger("hexport")


def load(
    package: str | Path,
    backend: str = AUTO,
    *,
    target: str | int | None = None,
    isolate: bool = False,
    allow_cpu: bool = True,
    performance: str | None = None,
    priority: str | None = None,
    rpc_latency: int | None = None,
    profiling: str | None = None,
    profiling_file: str | Path | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = _LOG.warning,
    device: Device | None = None,
) -> Session:
    """A session that runs ``package`` like the original model.

    ``backend`` is ``auto`` (the NPU, or the CPU where there is none), ``npu``, ``simulator``, ``gpu`` or
    ``cpu``. ``isolate`` puts native code into a worker process. Without ``allow_cpu`` inputs that fit nothing
    compiled are an error; with it they run on the packaged CPU model, which is said. ``say`` is called with
    each such line; by default the logger ``hexport`` warns.
    """
    started = time.perf_counter()
    opened = open_package(package, verify=False)
    choice = choose(opened, backend, target, device or this_device())
    tuning = Tuning(performance, priority, rpc_latency, profiling, absolute(profiling_file))
    if choice.backend == CPU and backend == AUTO and tuning != Tuning():
        choice = replace(choice, notes=(*choice.notes, "options for the NPU have no effect on the CPU"))
        tuning = Tuning()
    notes: list[str] = []

    def tell(line: str) -> None:
        if line not in notes:
            notes.append(line)
            say(line)

    plan = Plan(opened, choice, tuning.provider_options(choice.backend), tell, limits)
    if choice.backend == CPU:
        plan.cpu_part()  # compared with the manifest now, and not at the first request
    engine: Engine = Isolated(limits) if isolate else InProcess()
    for line in choice.notes:
        tell(line)

    def again(changed: Tuning) -> Session:
        return load(
            package,
            choice.backend,
            target=choice.target.name if choice.target else None,
            isolate=isolate,
            allow_cpu=allow_cpu,
            performance=changed.performance,
            priority=changed.priority,
            rpc_latency=changed.rpc_latency,
            profiling=changed.profiling,
            profiling_file=changed.profiling_file,
            limits=limits,
            say=tell,
            device=device,
        )

    return Session(
        plan,
        engine,
        tell,
        notes,
        isolated=isolate,
        allow_cpu=allow_cpu,
        load_seconds=time.perf_counter() - started,
        tuning=tuning,
        again=again,
    )
