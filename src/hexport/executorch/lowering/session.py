"""One worker for several lowerings: to start it takes longer than to lower a small program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hexport.executorch.lowering.calling import call
from hexport.executorch.lowering.requests import MODULE, QuantizeRequest
from hexport.executorch.lowering.sdk import lowering_interpreter, qnn_title, try_sdk
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import JobFailed, Limits, Worker, WorkerError
from hexport.toolchain.kept_log import keep_logs


class Session:
    """A worker in the toolchain that has executorch; one that ended badly is replaced when needed again."""

    def __init__(
        self, toolchain: str | None = None, qnn_sdk: Path | None = None, limits: Limits | None = None
    ) -> None:
        self.interpreter = lowering_interpreter(toolchain, qnn_sdk)
        self.qnn = qnn_title(self.interpreter, qnn_sdk)
        self._limits = limits
        self._untried = qnn_sdk
        self._open = ExitStack()
        self._worker: Worker | None = None
        self._folder = self._open.enter_context(temporary_folder())

    @property
    def log(self) -> Path:
        """Where the worker's native code says what it says."""
        return self._folder / "native.log"

    def try_sdk(self, request: QuantizeRequest) -> None:
        """Whether the user's own SDK works, asked once, before any work is done with it."""
        if self._untried is not None:
            try_sdk(self.interpreter, self._untried, request, self._limits)
            self._untried = None

    def call(self, job: str, request: object) -> dict[str, Any]:
        """Run a job; what it fails with in words becomes what it is."""
        if self._worker is None:
            self._worker = Worker(MODULE, self.log, limits=self._limits, python=self.interpreter)
        try:
            return call(self._worker, job, request)
        except WorkerError as error:
            if not isinstance(error, JobFailed) and not isinstance(error.__cause__, JobFailed):
                self._end()
            raise

    @contextmanager
    def kept_log(self, destination: Path | None) -> Iterator[None]:
        """Copy the log to where the user wants it, whatever comes."""
        try:
            yield
        finally:
            if destination is not None:
                keep_logs({"lowering": self.log}, destination)

    def close(self) -> None:
        """End the worker. Safe to call twice."""
        self._end()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
