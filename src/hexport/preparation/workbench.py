"""The model under work: every change is tried on a copy, proved on the CPU, and kept or dropped.

This is where "every change is checked" lives; what to try is decided in ``pipeline.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport import facts
from hexport.backend.running import run_on_cpu
from hexport.errors import HexportError
from hexport.observe.check import check_and_run
from hexport.observe.comparing import Comparison, compare
from hexport.observe.verdict import Verdict
from hexport.storage.keys import file_digest
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.preparation.samples import Sample

EQUAL_DB = 60.0
"""Float32 reordered gives 100 dB and more; what is below this computes something else."""

HTP_SAMPLES = 1


@dataclass(frozen=True)
class Attempt:
    """One change that was tried."""

    name: str
    kept: bool
    why: str = ""
    """Why it was dropped, or what it did."""
    nodes: tuple[str, ...] = ()
    """The user's nodes it replaced, for a rule."""


@dataclass
class Workbench:
    """Holds the current model, and what is needed to judge the next one."""

    model: ir.Model
    target: facts.Soc
    folder: Path
    samples: Sequence[Sample]
    """Inputs of the model as it is now: frozen ones are not among them."""
    reference: Sequence[Mapping[str, object]]
    """What the user's own model gives for them, in fp32 on the CPU."""
    limits: Limits
    real: bool = True
    """Whether the samples are a user's, and not random numbers."""
    attempts: list[Attempt] = field(default_factory=list)
    _saved: int = 0
    _judged: dict[str, Comparison] = field(default_factory=dict)
    """By what the file holds."""

    def save(self, model: ir.Model) -> Path:
        """A numbered file for workers to read."""
        self._saved += 1
        path = self.folder / f"candidate{self._saved}.onnx"
        ir.save(model, path)
        return path

    def equivalence(self, model: ir.Model) -> Comparison:
        """The model on the CPU against the reference. A step that changed nothing costs no run."""
        path = self.save(model)
        content = file_digest(path)
        if content not in self._judged:
            results = run_on_cpu(path, self.samples, limits=self.limits)
            self._judged[content] = compare(self.reference, results.outputs, real=self.real)  # type: ignore[arg-type]
        return self._judged[content]

    def on_npu(self, model: ir.Model) -> tuple[Verdict, Comparison]:
        """What the backend says of it, and how near its arithmetic comes to the reference.

        The simulator takes seconds to minutes for a sample, and this is asked for every cure that is tried.
        """
        path, samples = self.save(model), self.samples[:HTP_SAMPLES]
        verdict, outputs = check_and_run(path, self.target, samples, limits=self.limits)
        return verdict, compare(self.reference[:HTP_SAMPLES], outputs, real=self.real)  # type: ignore[arg-type]

    def drop_since(self, count: int, why: str) -> None:
        """Record that what was kept after the first ``count`` attempts was undone after all."""
        self.attempts[count:] = [
            replace(attempt, kept=False, why=why) if attempt.kept else attempt
            for attempt in self.attempts[count:]
        ]

    def try_change(self, name: str, change: Callable[[ir.Model], ir.Model]) -> bool:
        """Keep what ``change`` makes of a copy, if it still computes the same; says whether it was kept."""
        try:
            candidate = change(self.model.clone())
            result = self.equivalence(candidate)
        except HexportError as error:
            self.attempts.append(Attempt(name, kept=False, why=f"{error.what}: {error.why}"))
            return False
        except Exception as error:  # noqa: BLE001 - a library's own failure on this model: dropped, and said
            self.attempts.append(Attempt(name, kept=False, why=f"{type(error).__name__}: {error}"))
            return False
        if result.sqnr_db < EQUAL_DB:
            worst = result.worst
            where = f"output {worst.name!r} {worst.note}".strip() if worst else ""
            self.attempts.append(
                Attempt(name, kept=False, why=f"it changes the result: {result.sqnr_db:.0f} dB, {where}")
            )
            return False
        self.model = candidate
        self.attempts.append(Attempt(name, kept=True))
        return True
