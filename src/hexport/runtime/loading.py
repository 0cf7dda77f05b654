"""``load``: from a package to a session, with the core install only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hexport.errors import UsageError
from hexport.packaging import open_package
from hexport.runtime.admission import MOST_WAITING
from hexport.runtime.choosing import AUTO, CPU, choose
from hexport.runtime.device import Device, this_device
from hexport.runtime.engine import Engine, InProcess
from hexport.runtime.failures import BackendMissing
from hexport.runtime.isolated import Isolated
from hexport.runtime.options import Tuning, absolute
from hexport.runtime.planning import Plan
from hexport.runtime.session import Session
from hexport.toolchain import Interpreter, Limits, in_force, only_here

__all__ = ["Session", "interpreter_of", "load"]

_LOG = logging.getLogger("hexport")


def load(
    package: str | Path,
    backend: str = AUTO,
    *,
    toolchain: str | None = None,
    target: str | int | None = None,
    isolate: bool | None = None,
    workers: int = 1,
    max_waiting: int = MOST_WAITING,
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
    ``cpu``. ``isolate`` puts native code into a worker process, and ``workers`` into so many; ``toolchain``
    puts it into processes of that toolchain's interpreter, and then everything is about that interpreter.
    Beyond ``max_waiting`` requests that wait, each is refused at once. Without ``allow_cpu`` inputs that fit
    nothing compiled are an error; with it they run on the packaged CPU model, which is said. ``say`` is
    called with each such line; by default the logger ``hexport`` warns.
    """
    interpreter = interpreter_of(toolchain)
    return _Order(
        package,
        backend,
        interpreter,
        target,
        _worker_count(isolate, workers, interpreter),
        max_waiting,
        allow_cpu,
        Tuning(performance, priority, rpc_latency, profiling, absolute(profiling_file)),
        limits,
        say,
        device,
    ).session()


@dataclass(frozen=True)
class _Order:
    """All that a session is made from, so that another one can be made like it."""

    package: str | Path
    backend: str
    interpreter: Interpreter | None
    target: str | int | None
    workers: int
    """0: in this process."""
    max_waiting: int
    allow_cpu: bool
    tuning: Tuning
    limits: Limits | None
    say: Callable[[str], None]
    device: Device | None

    def session(self) -> Session:
        started = time.perf_counter()
        notes: list[str] = []

        def tell(line: str) -> None:
            if line not in notes:
                notes.append(line)
                self.say(line)

        # What is there, what fits and which options there are: of that interpreter, whatever is in force.
        with only_here(self.interpreter):
            plan, tuning = self._planned(tell)
        chosen = plan.choice
        target = chosen.target.name if chosen.target else None
        alike = replace(self, backend=chosen.backend, target=target, say=tell)
        return Session(
            plan,
            self._engine(),
            tell,
            notes,
            workers=self.workers,
            allow_cpu=self.allow_cpu,
            load_seconds=time.perf_counter() - started,
            tuning=tuning,
            again=lambda changed: replace(alike, tuning=changed).session(),
            max_waiting=self.max_waiting,
        )

    def _planned(self, tell: Callable[[str], None]) -> tuple[Plan, Tuning]:
        opened = open_package(self.package, verify=False)
        choice = choose(opened, self.backend, self.target, self.device or this_device())
        tuning = self.tuning
        if choice.backend == CPU and self.backend == AUTO and tuning != Tuning():
            choice = replace(choice, notes=(*choice.notes, "options for the NPU have no effect on the CPU"))
            tuning = Tuning()
        options = tuning.provider_options(choice.backend)
        plan = Plan(opened, choice, options, tell, self.limits, self.interpreter)
        if choice.backend == CPU:
            plan.cpu_part()  # compared with the manifest now, and not at the first request
        for line in choice.notes:
            tell(line)
        return plan, tuning

    def _engine(self) -> Engine:
        return Isolated(self.limits, self.interpreter, self.workers) if self.workers else InProcess()


def interpreter_of(toolchain: str | None) -> Interpreter | None:
    """The one that a session keeps, however long it lives: what is asked for, else what is in force now."""
    chosen = in_force()
    if toolchain is not None:
        from hexport.environments.choosing import find
        from hexport.environments.registry import THIS

        chosen = None if toolchain == THIS else find(toolchain).interpreter
    if chosen is not None and "onnxruntime" not in chosen.packages:
        raise BackendMissing(
            f"packages do not run in the toolchain {chosen.name!r}",
            why="it has no onnxruntime",
            next="hexport toolchain list; hexport toolchain add onnxruntime-qnn==VERSION",
        )
    return chosen


def _worker_count(isolate: bool | None, workers: int, interpreter: Interpreter | None) -> int:
    if workers < 1:
        raise UsageError(f"workers={workers}", next="one is the least; isolate=False has none")
    needed = interpreter is not None or workers > 1
    if isolate is False and needed:
        what = f"toolchain {interpreter.name!r}" if interpreter is not None else f"workers={workers}"
        raise UsageError(
            f"isolate=False does not go with {what}",
            why="it means this very process",
            next="leave one of them out",
        )
    return workers if isolate or needed else 0
