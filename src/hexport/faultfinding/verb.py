"""``debug reduce``: find how a model fails, and the smallest piece of it that fails in the same way."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport import facts, zoo
from hexport.errors import UsageError
from hexport.faultfinding.backend_failure import BackendTrial, Failing, Works
from hexport.faultfinding.check_command import CheckCommand
from hexport.faultfinding.recording import save_sample
from hexport.faultfinding.reduce import Kept, Reduction, Step, reduce_model
from hexport.faultfinding.saving import save_whole
from hexport.faultfinding.symptoms import Stage, Symptom
from hexport.model import Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.labels import REDUCED
from hexport.model.staging import stage
from hexport.preparation.freezing import parse_frozen
from hexport.preparation.samples import find_samples
from hexport.records import to_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.whole_file import refuse_missing_folder, whole_or_absent
from hexport.zoo.defaults import zoo_defaults

if TYPE_CHECKING:
    from hexport.faultfinding.recording import Arrays

WRONG_BELOW_DB = 30.0
"""fp16 alone leaves 60 dB and more, and a model on the edge of use about this."""


@dataclass(frozen=True)
class ReducedModel:
    """What is left of a model that fails; nothing when it does not fail."""

    model: str
    output: str
    target: facts.Soc | None
    failure: Symptom | None
    """None when the model does not fail."""
    nodes: tuple[Kept, ...]
    of: int
    tried: int
    minimal: bool
    seconds: float
    samples: str
    """The file with the piece's inputs; empty when any will do."""
    reproduce: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "model": self.model,
            "fails": self.failure is not None,
            "failure": self.failure.to_json() if self.failure else None,
            "output": self.output,
            "samples": self.samples,
            "target": self.target.chip if self.target else None,
            "nodes": to_plain(self.nodes),
            "of": self.of,
            "tried": self.tried,
            "minimal": self.minimal,
            "seconds": round(self.seconds, 3),
            "reproduce": self.reproduce,
            "warnings": list(self.notes),
        }


def debug_reduce(
    model: str | Path,
    *,
    output: Path,
    target: str | int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    below: float | None = None,
    calib: object = None,
    check: str | None = None,
    budget: float | None = None,
    limits: Limits | None = None,
    progress: Callable[[Step], None] = lambda _: None,
) -> ReducedModel:
    """Write to ``output`` the smallest piece of ``model`` that fails as it does. Whole or not at all."""
    soc = None if target is None else facts.find_target(target)
    _refuse_contradictions(soc, below, calib, check)
    refuse_missing_folder(output)
    limits = limits or Limits()
    deadline = None if budget is None else time.monotonic() + budget
    opened = _open(model, dims, input_shapes, calib, None if check else soc)
    with temporary_folder() as folder:
        whole = opened.load(folder)
        task = _Task(str(model), output, soc, opened.notes, progress, limits, deadline)
        if check is not None:
            if soc is not None:
                task.notes.append("--target is not looked at: with --check the command alone decides")
            return task.by_command(whole, CheckCommand(check, folder, limits))
        assert soc is not None
        limit = WRONG_BELOW_DB if below is None else below
        trial = BackendTrial(soc, limit, folder, limits, deadline)
        return task.by_backend(whole, opened, trial, below_given=below is not None)


def _refuse_contradictions(
    soc: facts.Soc | None, below: float | None, calib: object, check: str | None
) -> None:
    if soc is None and check is None:
        raise UsageError(
            "neither --target nor --check is given",
            why="the failure is either what the compiler does for a chip, or what a command says",
            next="add --target SM8650, or --check 'COMMAND {model}'",
        )
    if check is not None and (below is not None or calib is not None):
        raise UsageError(
            "--below and --calib do not go with --check",
            why="with --check the command alone says whether the failure shows",
            next="leave them out, or leave --check out",
        )


@dataclass(frozen=True)
class _Opened:
    source: Model
    shapes: dict[str, Shape]
    sample: Arrays
    random: bool
    notes: list[str]

    def load(self, folder: Path) -> ir.Model:
        """The model at fixed sizes, weights in memory."""
        staged = stage(self.source, self.shapes, folder)
        whole = ir.load(staged.model)
        if staged.data_folder_if_needed:
            ir.external_data.set_base_dir(whole.graph, staged.data_folder_if_needed)
        ir.external_data.load_to_model(whole)
        return whole


def _open(
    model: str | Path,
    dims: Mapping[str, int] | None,
    input_shapes: Mapping[str, Shape] | None,
    calib: object,
    soc: facts.Soc | None,
) -> _Opened:
    source = read(zoo.resolve(model))
    # Without a chip only the structure counts, and no input needs a value.
    asked: dict[str, str] | None = {} if soc is None else None
    given, frozen, notes = zoo_defaults(model, input_shapes, asked, sized=bool(dims))
    command = f"hexport debug reduce '{model}' -o SMALL.onnx" + (f" --target {soc.chip}" if soc else "")
    shapes = fix_shapes(source.graph, dims or {}, given, command)
    if soc is None:
        return _Opened(source, shapes, {}, False, notes)
    values = parse_frozen(source.graph, frozen, shapes)
    samples = find_samples(model, source.graph, shapes, values, calib)
    return _Opened(source, shapes, samples.values[0], not samples.real, notes)


@dataclass
class _Task:
    """One model on its way to a smaller one."""

    name: str
    output: Path
    target: facts.Soc | None
    notes: list[str]
    progress: Callable[[Step], None]
    limits: Limits
    deadline: float | None

    def by_command(self, whole: ir.Model, command: CheckCommand) -> ReducedModel:
        if not command.still_fails(whole):
            self.notes.append("the command did not end with 0 on the whole model: 0 means that it fails")
            return self._works()
        reduction = self._reduce(whole, command.still_fails)
        with whole_or_absent(self.output) as part:
            save_whole(_labelled(reduction.model), part)
        symptom = Symptom(Stage.COMMAND, "", "the command ends with 0", command.text)
        again = command.text.replace("{model}", shlex.quote(str(self.output)))
        return self._report(reduction, symptom, again, "")

    def by_backend(
        self, whole: ir.Model, opened: _Opened, trial: BackendTrial, *, below_given: bool
    ) -> ReducedModel:
        failing = trial.establish(whole, opened.sample)
        if opened.random and (isinstance(failing, Works) or failing.recording):
            self.notes.append("run on random inputs; give real ones with --calib")
        if isinstance(failing, Works):
            self.notes.append(
                f"it compiles for {trial.target.chip} and is {failing.sqnr_db:.1f} dB against the CPU: "
                f"wrong is what is below {trial.below:g} (--below)"
            )
            return self._works()
        if below_given and failing.symptom.stage is not Stage.RESULTS:
            self.notes.append("--below is not looked at: the model gives no results")
        reduction = self._reduce(whole, failing.shows)
        samples = self._save(reduction.model, failing)
        symptom = trial.confirm(self.output, reduction.model, failing)
        if symptom is None:
            self.notes.append("asked once more, the piece did not fail: the failure does not show every time")
        return self._report(
            reduction, symptom or failing.symptom, self._command(failing, trial, samples), samples
        )

    def _reduce(self, whole: ir.Model, shows: Callable[[ir.Model], bool]) -> Reduction:
        left = None if self.deadline is None else max(self.deadline - time.monotonic(), 0)
        # --timeout is for what may hang; the CPU only looks at types.
        cpu = Limits(memory_bytes=self.limits.memory_bytes)
        return reduce_model(whole, shows, seconds=left, confirmed=True, progress=self.progress, limits=cpu)

    def _save(self, piece: ir.Model, failing: Failing) -> str:
        samples = ""
        if failing.recording is not None:
            path = self.output.with_suffix(".npz")
            with whole_or_absent(path) as part:
                save_sample(failing.recording.of(piece.graph.inputs), part)
            samples = str(path)
        with whole_or_absent(self.output) as part:
            save_whole(_labelled(piece), part)
        return samples

    def _command(self, failing: Failing, trial: BackendTrial, samples: str) -> str:
        output, chip = shlex.quote(str(self.output)), trial.target.chip
        if failing.symptom.stage is Stage.COMPILING:
            return f"hexport check {output} --target {chip}"
        again = shlex.quote(str(self.output.with_name(f"{self.output.stem}_again.onnx")))
        wrong = f" --below {trial.below:g}" if failing.symptom.stage is Stage.RESULTS else ""
        return (
            f"hexport debug reduce {output} -o {again} --target {chip} --calib {shlex.quote(samples)}{wrong}"
        )

    def _works(self) -> ReducedModel:
        return ReducedModel(self.name, "", self.target, None, (), 0, 0, False, 0.0, "", "", tuple(self.notes))

    def _report(self, found: Reduction, symptom: Symptom, command: str, samples: str) -> ReducedModel:
        if not found.minimal:
            self.notes.append("the time was up: there may be a smaller piece; raise --budget")
        return ReducedModel(
            self.name,
            str(self.output),
            self.target,
            symptom,
            found.nodes,
            found.of,
            found.tried,
            found.minimal,
            found.seconds,
            samples,
            command,
            tuple(self.notes),
        )


def _labelled(model: ir.Model) -> ir.Model:
    """That it is a piece; no times or paths, so that the same gives the same bytes."""
    from hexport.version import __version__

    model.metadata_props[REDUCED] = __version__
    return model
