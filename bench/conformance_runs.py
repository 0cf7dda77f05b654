"""Running a test in a worker that may die, and what came of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hexport.toolchain import JobFailed, Limits, Worker, WorkerError

OUTCOMES = ("right", "wrong", "failed", "killed", "cpu")
BAD = ("wrong", "failed", "killed")
ENOUGH_DB = 30.0
# A session leaves memory behind; a process for all of the tests would grow with every one.
_TESTS_A_PROCESS = 200


@dataclass(frozen=True)
class Outcome:
    """What the provider made of one test."""

    kind: str
    """One of ``OUTCOMES``: right, silently wrong, failed, killed the process, or left to the CPU."""
    whole: bool = False
    """Every node ran on the NPU."""
    db: float | None = None
    """Signal to noise against the CPU; None for equal, or when nothing came out."""
    error: str = ""


class Runner:
    """A worker process, replaced when it dies and after every so many tests."""

    def __init__(self, log: Path, soc_model: int, seconds: float = 60.0) -> None:
        self._log = log
        self._soc_model = str(soc_model)
        self._limits = Limits(seconds=seconds)
        self._worker: Worker | None = None
        self._tests = 0

    def on_cpu(self, model: Path, inputs: Path, outputs: Path) -> bool:
        """Whether ONNX Runtime's CPU runs it; the results go to ``outputs``."""
        try:
            self._call("run_on_cpu", model=str(model), inputs=str(inputs), outputs=str(outputs))
        except WorkerError:
            return False
        return True

    def on_npu(self, model: Path, inputs: Path, expected: Path) -> Outcome:
        """What the provider makes of it."""
        try:
            reply = self._call(
                "run_on_npu",
                model=str(model),
                inputs=str(inputs),
                expected=str(expected),
                soc_model=self._soc_model,
            )
        except JobFailed as error:
            return Outcome("failed", error=error.text)
        except WorkerError as error:
            return Outcome("killed", error=error.what)
        db = reply["db"]
        if not reply["on_npu"]:
            return Outcome("cpu", db=db)
        kind = "right" if db is None or db >= ENOUGH_DB else "wrong"
        return Outcome(kind, whole=not reply["on_cpu"], db=db)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, job: str, **arguments: str) -> dict[str, Any]:
        if self._tests >= _TESTS_A_PROCESS:
            self.close()
        if self._worker is None:
            self._tests = 0
            here = {"PYTHONPATH": str(Path(__file__).parent)}
            self._worker = Worker("conformance_jobs", self._log, limits=self._limits, environment=here)
        self._tests += 1
        try:
            return self._worker.call(job, arguments)
        except JobFailed:
            raise
        except WorkerError:
            with suppress(WorkerError):
                self.close()
            raise
