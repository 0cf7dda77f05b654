"""Running a model on samples, in a worker: on the CPU for the reference, on the HTP for the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts
from hexport.backend import failures
from hexport.backend.calling import MODULE, PROVIDER, call, cure
from hexport.backend.native_log import read_native_log
from hexport.backend.options import validate_options
from hexport.backend.requests import AssignedPart, RunReply, RunRequest
from hexport.backend.sample_files import read_results, write_samples
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker
from hexport.toolchain.last_words import last_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample


@dataclass(frozen=True)
class Results:
    """What came out, sample by sample, and who computed it."""

    outputs: tuple[dict[str, NDArray[np.generic]], ...]
    parts: tuple[AssignedPart, ...]
    session_seconds: float

    @property
    def npu_parts(self) -> int:
        return sum(part.provider == PROVIDER for part in self.parts)


def run_on_cpu(
    model: Path,
    samples: Sequence[Sample],
    *,
    optimize: bool = True,
    data_folder: str = "",
    limits: Limits | None = None,
) -> Results:
    """The reference. ``optimize=False`` for QDQ models, whose results ONNX Runtime's fusions shift."""
    return _run(model, samples, {}, optimize, data_folder, limits)


def run_on_htp(
    model: Path,
    samples: Sequence[Sample],
    target: facts.Soc,
    *,
    options: Mapping[str, str] | None = None,
    data_folder: str = "",
    limits: Limits | None = None,
) -> Results:
    """The NPU's own arithmetic, in Qualcomm's simulator. ``model`` must have fixed shapes."""
    provider = {"backend_type": "htp", "soc_model": str(target.soc_model), **(options or {})}
    return _run(model, samples, dict(validate_options(provider)), True, data_folder, limits)


def _run(
    model: Path,
    samples: Sequence[Sample],
    provider: dict[str, str],
    optimize: bool,
    data_folder: str,
    limits: Limits | None,
) -> Results:
    with temporary_folder() as folder:
        files, log = write_samples(samples, folder), folder / "native.log"
        request = RunRequest(str(model.resolve()), data_folder, files, provider, optimize=optimize)
        with Worker(MODULE, log, limits=limits) as worker:
            reply = from_plain(RunReply, call(worker, "run_model", request))
        if provider:
            _refuse_dead_backend(log)
        return Results(read_results(files, reply.output_names), reply.parts, reply.session_seconds)


def _refuse_dead_backend(log: Path) -> None:
    if failure := read_native_log(log).setup_failure:
        raise failures.BackendNotInitialised(
            "the backend did not start; every node ran on the CPU",
            why=failure,
            next=cure(failure) or "run `hexport doctor`",
            native_log=last_words(log),
        )
