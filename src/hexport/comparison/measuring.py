"""One side's figures: what its compiler made of the model, and what that computes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hexport.backend.failures import BackendError, RunFailed
from hexport.backend.probe import probe
from hexport.backend.running import run_on_cpu
from hexport.backend.tracing import traces
from hexport.backend.where import HTP, accept, choose_where
from hexport.comparison.sides import Side
from hexport.comparison.subject import Packaged, Subject
from hexport.errors import HexportError
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.check import explained
from hexport.observe.judgement import judge
from hexport.observe.verdict import Verdict
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import (
    Limits,
    WorkerCrashed,
    WorkerExited,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from hexport.verification.subject import CPU, is_quantised

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs

_MAY_BE_OF_THE_RUN = (RunFailed, WorkerCrashed, WorkerExited, WorkerOutOfMemory, WorkerTimeout)
"""After these the model is compiled once more without being run: that alone may work."""


@dataclass(frozen=True)
class Loaded:
    """What became of a packaged binary on one side."""

    outputs: tuple[Outputs, ...] = ()
    failure: HexportError | None = None
    untried: str = ""
    """Why nobody can tell."""


@dataclass(frozen=True)
class Measured:
    """What one side gave."""

    side: Side
    verdict: Verdict | None = None
    """None where nothing is compiled, or nothing could be."""
    outputs: tuple[Outputs, ...] = ()
    failure: HexportError | None = None
    """The end of this side: of compiling, or of running what was compiled when there is a verdict."""
    loaded: Loaded | None = None
    """None: no package is compared."""
    traced: bool = True
    """Whether this release tells which operators it compiled."""
    cpu_seconds: float | None = None
    """What its workers took to compile and run; None where the system does not tell."""


def measure(side: Side, subject: Subject, limits: Limits) -> Measured:
    """All that can be had; an error of the side's own is a part of it."""
    with side.in_force():
        before = _workers_seconds()
        measured = _on_cpu(side, subject, limits) if side.backend == CPU else _compiled(side, subject, limits)
        taken = round(_workers_seconds() - before, 2)
        loaded = None if subject.packaged is None else _load(side, subject.packaged, limits)
        # Windows tells zero for whatever its processes took.
        return replace(measured, loaded=loaded, traced=traces(), cpu_seconds=taken or None)


def _workers_seconds() -> float:
    """Processor time of all workers that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _on_cpu(side: Side, subject: Subject, limits: Limits) -> Measured:
    with temporary_folder() as folder:
        staged = stage(subject.source, subject.shapes, folder)
        try:
            results = run_on_cpu(
                staged.model,
                subject.samples,
                optimize=not is_quantised(subject.source),
                data_folder=staged.data_folder_if_needed,
                limits=limits,
            )
        except HexportError as error:
            return Measured(side, failure=error)
    return Measured(side, outputs=subject.trimmed(results.outputs))


def _compiled(side: Side, subject: Subject, limits: Limits) -> Measured:
    try:
        verdict, outputs = _probe(side, subject, limits, run=True)
    except _MAY_BE_OF_THE_RUN as error:
        return Measured(side, _only_compiled(side, subject, limits), failure=error)
    except HexportError as error:
        return Measured(side, failure=error)
    return Measured(side, verdict, outputs)


def _only_compiled(side: Side, subject: Subject, limits: Limits) -> Verdict | None:
    try:
        return _probe(side, subject, limits, run=False)[0]
    except HexportError:
        return None  # the first error tells it


def _probe(side: Side, subject: Subject, limits: Limits, *, run: bool) -> tuple[Verdict, tuple[Outputs, ...]]:
    """From one session, because compiling can take minutes, and so that what was compiled is what ran."""
    source, soc = subject.source, subject.soc if side.backend == HTP else None
    where = choose_where(side.backend, soc.soc_model if soc else None)
    notes = list(accept(where, source.graph, subject.what))
    with temporary_folder() as workdir:
        staged = stage(source, subject.shapes, workdir)
        samples = subject.samples if run else ()
        try:
            evidence = probe(staged, where, workdir, samples=samples, limits=limits)
        except BackendError as error:
            if soc is None:
                raise
            raise explained(error, source.graph, soc) from error
    scheme = scheme_of(source.graph, evidence.types)
    verdict = judge(subject.what, source, where, scheme, dict(subject.shapes), evidence, notes)
    return verdict, subject.trimmed(evidence.outputs)


def _load(side: Side, packaged: Packaged, limits: Limits) -> Loaded:
    if side.backend != HTP:
        return Loaded(untried=f"the packaged binary is for the NPU, and {side.backend} loads no such")
    if packaged.refusal:
        return Loaded(untried=packaged.refusal)
    try:
        return Loaded(packaged.run(limits))
    except HexportError as error:
        return Loaded(failure=error)
