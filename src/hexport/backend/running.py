"""Running a model on samples, in a worker: on the CPU for the reference, on the HTP for the truth."""

from __future__ import annotations

import tempfile
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
from hexport.records import from_plain
from hexport.toolchain import Limits, Worker
from hexport.toolchain.last_words import last_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Sample = Mapping[str, NDArray[np.generic]]


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
    import numpy as np

    names = tuple(samples[0]) if samples else ()
    with tempfile.TemporaryDirectory(prefix="hexport-") as folder:
        inputs, outputs, log = Path(folder, "in"), Path(folder, "out"), Path(folder, "native.log")
        inputs.mkdir()
        outputs.mkdir()
        for i, sample in enumerate(samples):
            np.savez(inputs / f"{i}.npz", *(np.asarray(sample[name]) for name in names))
        request = RunRequest(
            str(model.resolve()),
            data_folder,
            str(inputs),
            str(outputs),
            len(samples),
            names,
            provider,
            optimize=optimize,
        )
        with Worker(MODULE, log, limits=limits) as worker:
            reply = from_plain(RunReply, call(worker, "run_model", request))
        if provider:
            _refuse_dead_backend(log)
        results = tuple(_load(outputs / f"{i}.npz", reply.output_names) for i in range(len(samples)))
    return Results(results, reply.parts, reply.session_seconds)


def _load(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[np.generic]]:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"arr_{i}"] for i, name in enumerate(names)}


def _refuse_dead_backend(log: Path) -> None:
    if failure := read_native_log(log).setup_failure:
        raise failures.BackendNotInitialised(
            "the backend did not start; every node ran on the CPU",
            why=failure,
            next=cure(failure) or "run `hexport doctor`",
            native_log=last_words(log),
        )
