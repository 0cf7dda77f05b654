"""Many small models on the NPU, one after the other, in a worker that is replaced when one kills it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import onnx_ir as ir

from hexport import facts
from hexport.backend.calling import MODULE, PROVIDER, call
from hexport.backend.failures import BackendError
from hexport.backend.requests import RunReply, RunRequest
from hexport.backend.sample_files import read_results, write_samples
from hexport.records import from_plain
from hexport.toolchain import JobFailed, Limits, Worker, WorkerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_MODELS_A_PROCESS = 200
"""A session leaves memory behind; one process for all models would grow with each."""


@dataclass(frozen=True)
class Trial:
    """What became of one model."""

    outputs: Mapping[str, Array] = field(default_factory=dict)
    on_npu: int = 0
    """How many of its nodes the NPU took."""
    failure: str = ""


class Trials:
    """Runs models; use it as a context manager, which ends the worker."""

    def __init__(self, folder: Path, target: facts.Soc, limits: Limits) -> None:
        self._folder = folder
        self._provider = {"backend_type": "htp", "soc_model": str(target.soc_model)}
        self._limits = limits
        self._worker: Worker | None = None
        self._models = 0

    def on_npu(self, model: ir.Model, feeds: Mapping[str, Array]) -> Trial:
        """The model on the NPU's own arithmetic."""
        return self._run(model, feeds, self._provider)

    def on_cpu(self, model: ir.Model, feeds: Mapping[str, Array]) -> Trial:
        """The model as ONNX defines it."""
        return self._run(model, feeds, {})

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

    def _run(self, model: ir.Model, feeds: Mapping[str, Array], provider: dict[str, str]) -> Trial:
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self._folder) as folder:
            path = Path(folder, "model.onnx")
            ir.save(model, path)
            files = write_samples([feeds], Path(folder))
            request = RunRequest(str(path), "", files, provider, optimize=bool(provider))
            try:
                reply = from_plain(RunReply, call(self._ready(), "run_model", request))
            except (BackendError, JobFailed) as error:
                return Trial(failure=error.why.splitlines()[0] if error.why else error.what)
            except WorkerError as error:
                self.close()
                return Trial(failure=error.what)
            taken = sum(len(part.nodes) for part in reply.parts if part.provider == PROVIDER)
            return Trial(read_results(files, reply.output_names)[0], taken)

    def _ready(self) -> Worker:
        if self._models >= _MODELS_A_PROCESS:
            self.close()
        if self._worker is None:
            self._models = 0
            self._worker = Worker(MODULE, self._folder / "trials.log", limits=self._limits)
        self._models += 1
        return self._worker
