"""The failure that is looked for when no command says what failing means: what the backend does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport import facts
from hexport.backend.failures import CompileFailed, RunFailed
from hexport.backend.running import run_on_htp
from hexport.faultfinding import symptoms
from hexport.faultfinding.recording import Recording, record
from hexport.faultfinding.saving import save_for_worker
from hexport.faultfinding.symptoms import Stage, Symptom
from hexport.observe.check import check
from hexport.observe.comparing import Comparison, compare
from hexport.toolchain import Limits, WorkerError, WorkerTimeout

if TYPE_CHECKING:
    from hexport.faultfinding.recording import Arrays

_LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Failing:
    """How the whole fails, and the question whether a piece does too."""

    symptom: Symptom
    shows: Callable[[ir.Model], bool]
    recording: Recording | None
    """Set when it takes values to show the failure."""


@dataclass(frozen=True)
class Works:
    """The whole does not fail."""

    sqnr_db: float


@dataclass
class BackendTrial:
    """Models are compiled for one target, and run on what they were really fed."""

    target: facts.Soc
    below: float
    folder: Path
    limits: Limits
    deadline: float | None = None
    """By ``time.monotonic()``: a piece that is still compiling then is given up."""

    def establish(self, model: ir.Model, sample: Arrays) -> Failing | Works:
        """Compile, run, compare; the first that goes wrong is the failure."""
        path = self.folder / "whole.onnx"
        save_for_worker(model, path)
        try:
            outputs = run_on_htp(path, [sample], self.target, limits=self.limits).outputs[0]
        except symptoms.OF_THE_MODEL as error:
            return self._failing(model, path, sample, error)
        recording = self._record(model, sample)
        comparison = compare([recording.of(model.graph.outputs)], [outputs])
        if comparison.sqnr_db >= self.below:
            return Works(comparison.sqnr_db)
        return Failing(self._wrong(comparison), lambda piece: self._is_wrong(piece, recording), recording)

    def confirm(self, path: Path, piece: ir.Model, failing: Failing) -> Symptom | None:
        """How the saved ``piece`` fails when it is asked about once more; None if it does not."""
        recording = failing.recording
        try:
            if recording is None:
                check(path, target=self.target.soc_model, limits=self.limits)
                return None
            fed = recording.of(piece.graph.inputs)
            outputs = run_on_htp(path, [fed], self.target, limits=self.limits).outputs
        except symptoms.OF_THE_MODEL as error:
            return symptoms.symptom_of(error, failing.symptom.stage)
        if failing.symptom.stage is not Stage.RESULTS:
            return None
        comparison = compare([recording.of(piece.graph.outputs)], outputs)
        return self._wrong(comparison) if comparison.sqnr_db < self.below else None

    def _failing(self, model: ir.Model, path: Path, sample: Arrays, error: WorkerError) -> Failing:
        wanted = symptoms.signature(error)
        if not isinstance(error, RunFailed) and (
            isinstance(error, CompileFailed) or self._fails_like(wanted, path)
        ):
            symptom = symptoms.symptom_of(error, Stage.COMPILING)
            return Failing(symptom, lambda piece: self._shows(piece, wanted, None), None)
        recording = self._record(model, sample)
        symptom = symptoms.symptom_of(error, Stage.RUNNING)
        return Failing(symptom, lambda piece: self._shows(piece, wanted, recording), recording)

    def _record(self, model: ir.Model, sample: Arrays) -> Recording:
        folder = self.folder / "recorded"
        folder.mkdir()
        return record(model, sample, folder, limits=Limits(memory_bytes=self.limits.memory_bytes))

    def _fails_like(self, wanted: tuple[str, ...], path: Path) -> bool:
        """Whether compiling alone shows it."""
        try:
            run_on_htp(path, [], self.target, limits=self.limits)
        except symptoms.OF_THE_MODEL as error:
            return symptoms.signature(error) == wanted
        return False

    def _shows(self, piece: ir.Model, wanted: tuple[str, ...], recording: Recording | None) -> bool:
        if recording is not None and not recording.has(piece.graph.inputs):
            return False
        try:
            self._run(piece, recording.of(piece.graph.inputs) if recording else None)
        except WorkerError as error:
            return symptoms.signature(error) == wanted and not self._given_up(error)
        return False

    def _is_wrong(self, piece: ir.Model, recording: Recording) -> bool:
        if not recording.has((*piece.graph.inputs, *piece.graph.outputs)):
            return False
        try:
            outputs = self._run(piece, recording.of(piece.graph.inputs))
        except WorkerError:
            return False  # it fails, but in another way
        return compare([recording.of(piece.graph.outputs)], [outputs]).sqnr_db < self.below

    def _run(self, piece: ir.Model, sample: Arrays | None) -> Arrays:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder, "piece.onnx")
            save_for_worker(piece, path)
            samples = [] if sample is None else [sample]
            results = run_on_htp(path, samples, self.target, limits=self._limits_now()).outputs
        return results[0] if results else {}

    def _limits_now(self) -> Limits:
        if self.deadline is None:
            return self.limits
        left = max(self.deadline - time.monotonic(), _LEAST_SECONDS)
        return replace(self.limits, seconds=min(self.limits.seconds, left))

    def _given_up(self, error: WorkerError) -> bool:
        """A time limit that our own budget cut short is not the model's failure."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late and isinstance(error, WorkerTimeout)

    def _wrong(self, comparison: Comparison) -> Symptom:
        worst = comparison.worst
        return symptoms.wrong_results(comparison.sqnr_db, self.below, worst.name if worst else "")
