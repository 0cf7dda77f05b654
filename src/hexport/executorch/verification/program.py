"""The outputs of saved torch programs, asked of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.backend.sample_files import read_results, write_samples
from hexport.executorch.pte.failures import ProgramUnusable
from hexport.executorch.verification.requests import MODULE, ProgramRequest
from hexport.records import to_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, JobFailed, Limits, Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What a job names → what happened, and what to do.
_SAID = {
    "ProgramUnreadable": ("cannot be loaded", "give a .pt2 as torch.export.save writes it"),
    "ProgramMisfit": ("is not the program that the .pte was made of", "name that one with --program"),
    "ProgramFailed": ("fails on these inputs", "give inputs that it takes"),
}


def run_programs(
    paths: Sequence[Path],
    samples: Sequence[Mapping[str, NDArray[Any]]],
    output_names: Sequence[str],
    interpreter: Interpreter,
    limits: Limits | None,
) -> list[tuple[dict[str, NDArray[Any]], ...]]:
    """Results of each by the names that the ``.pte`` has for them, which has them in the same order."""
    for path in paths:
        if not path.is_file():
            raise ProgramUnusable(f"{path} is no file", next="name the .pt2 that torch.export.save wrote")
    found = []
    with (
        temporary_folder() as folder,
        Worker(MODULE, folder / "native.log", limits=limits, python=interpreter) as worker,
    ):
        files = write_samples(samples, folder)
        for path in paths:
            _call(worker, path, ProgramRequest(str(path.resolve()), files, len(output_names)))
            found.append(read_results(files, output_names))
    return found


def _call(worker: Worker, path: Path, request: ProgramRequest) -> None:
    try:
        worker.call("run_program", to_plain(request))
    except JobFailed as error:
        if error.kind not in _SAID:
            raise
        what, cure = _SAID[error.kind]
        raise ProgramUnusable(
            f"{path} {what}", why=error.text, next=cure, native_log=error.native_log
        ) from error
