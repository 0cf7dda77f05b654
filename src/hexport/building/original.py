"""The original model on the CPU at many sizes, in one worker: its own word on what a size gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.backend.calling import MODULE, call
from hexport.backend.failures import ModelRejected, RunFailed
from hexport.backend.requests import RunReply, RunRequest
from hexport.backend.sample_files import read_results, write_samples
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample
    from hexport.building.padding_proof import Run
    from hexport.observe.comparing import Outputs


@contextmanager
def original(model: Path, limits: Limits) -> Iterator[Run]:
    """Runs samples that belong together; None where the model does not take the sizes of one of them."""
    with ExitStack() as stack:
        place = stack.enter_context(temporary_folder())
        worker = stack.enter_context(Worker(MODULE, place / "native.log", limits=limits))

        def run(samples: Sequence[Sample]) -> Sequence[Outputs] | None:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                files = write_samples(samples, Path(folder))
                try:
                    answer = call(worker, "run_model", RunRequest(str(model.resolve()), "", files, {}))
                except (RunFailed, ModelRejected):
                    return None
                return read_results(files, from_plain(RunReply, answer).output_names)

        yield run
