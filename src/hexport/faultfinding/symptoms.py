"""How a model fails, and whether another one fails in the same way."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from hexport import facts
from hexport.backend import failures
from hexport.toolchain import WorkerCrashed, WorkerError, WorkerTimeout
from hexport.toolchain.failures import WorkerExited, WorkerOutOfMemory

OF_THE_MODEL = (
    failures.CompileFailed,
    failures.NotCut,
    failures.RunFailed,
    WorkerCrashed,
    WorkerExited,
    WorkerTimeout,
    WorkerOutOfMemory,
)
"""What a model can do to the backend. Other errors are of the machine or the file."""

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|0x[0-9a-fA-F]+|\d+")
"""Names and numbers, which change with the piece: the layout transformer counts its nodes."""


class Stage(Enum):
    """When it shows."""

    COMPILING = "compiling"
    RUNNING = "running"
    RESULTS = "results"
    COMMAND = "command"


@dataclass(frozen=True)
class Symptom:
    """One way to fail."""

    stage: Stage
    code: str
    """Of the error (docs/errors.md); empty when it is not one."""
    what: str
    why: str = ""
    sqnr_db: float | None = None
    """How far wrong results are off."""

    def to_json(self) -> dict[str, object]:
        """For ``--json``, which has no infinities."""
        wrong = self.sqnr_db
        shown = "broken" if wrong is not None and math.isinf(wrong) else wrong
        return {
            "stage": self.stage.value,
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "sqnr_db": shown,
        }


def symptom_of(error: WorkerError, stage: Stage) -> Symptom:
    """What is shown of an error."""
    return Symptom(stage, error.code, error.what, error.why)


def signature(error: WorkerError) -> tuple[str, ...]:
    """Equal for the same failure: its type, QNN's codes in it, the first line of its cause."""
    # Spoilt memory ends a process now by this signal and now by that one, and its last words are no cause.
    if isinstance(error, (WorkerCrashed, WorkerTimeout, WorkerOutOfMemory)):
        return (error.code,)
    codes = (str(code.number) for code in facts.explain(error.why))
    first = error.why.splitlines()[0] if error.why else ""
    return (error.code, *codes, _VARYING.sub("…", first))


def wrong_results(sqnr_db: float, below: float, output: str) -> Symptom:
    """Numbers that are not those of the CPU."""
    off = "hold NaN, infinity or another shape" if math.isinf(sqnr_db) else f"are {sqnr_db:.1f} dB"
    return Symptom(
        Stage.RESULTS,
        "",
        f"the NPU's results {off} against the CPU, below {below:g} dB",
        f"the worst output is {output!r}",
        sqnr_db,
    )
