"""Running a model on samples, in a worker: on the CPU for the reference, on a QNN backend for the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts
from hexport.backend.calling import MODULE, PROVIDER, call, cure
from hexport.backend.native_log import read_native_log
from hexport.backend.options import validate_options
from hexport.backend.requests import AssignedPart, RunReply, RunRequest
from hexport.backend.sample_files import read_results, write_samples
from hexport.backend.where import Where, dead, on_chip, refuse_not_cut
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample

_REST = "Some nodes were not assigned to the preferred execution providers"


@dataclass(frozen=True)
class Results:
    """What came out, sample by sample, and who computed it."""

    outputs: tuple[dict[str, NDArray[np.generic]], ...]
    parts: tuple[AssignedPart, ...]
    session_seconds: float
    unlisted_rest: bool = False
    """ONNX Runtime said that nodes are on the CPU; older ones do not list those that they cast from fp16."""

    @property
    def npu_parts(self) -> int:
        return sum(part.provider == PROVIDER for part in self.parts)

    @property
    def taken(self) -> int:
        """Nodes that the QNN backend computed."""
        return sum(len(part.nodes) for part in self.parts if part.provider == PROVIDER)

    @property
    def left(self) -> int:
        """Nodes that ONNX Runtime's CPU computed."""
        return sum(len(part.nodes) for part in self.parts if part.provider != PROVIDER)

    @property
    def left_operators(self) -> str:
        """What those are, by operator."""
        ops = Counter(node.op for part in self.parts if part.provider != PROVIDER for node in part.nodes)
        return ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))

    @property
    def whole(self) -> bool:
        """Whether the QNN backend computed all of it."""
        return bool(self.taken) and not self.left and not self.unlisted_rest


def run_on_cpu(
    model: Path,
    samples: Sequence[Sample],
    *,
    optimize: bool = True,
    data_folder: str = "",
    limits: Limits | None = None,
) -> Results:
    """The reference. ``optimize=False`` for QDQ models, whose results ONNX Runtime's fusions shift."""
    return _run(model, samples, None, {}, optimize, data_folder, limits)


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
    return run_on(model, samples, on_chip(target), options=options, data_folder=data_folder, limits=limits)


def run_on(
    model: Path,
    samples: Sequence[Sample],
    where: Where,
    *,
    options: Mapping[str, str] | None = None,
    data_folder: str = "",
    limits: Limits | None = None,
) -> Results:
    """On a QNN backend, and what that leaves on the CPU. ``model`` must have fixed shapes."""
    provider = dict(validate_options({**where.options, **(options or {})}))
    return _run(model, samples, where, provider, True, data_folder, limits)


def _run(
    model: Path,
    samples: Sequence[Sample],
    where: Where | None,
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
        if where is not None:
            native = read_native_log(log)
            refuse_not_cut(native, log)
            if native.setup_failure:
                raise dead(where, native.setup_failure, log, cure(native.setup_failure))
        outputs = read_results(files, reply.output_names)
        rest = _REST in log.read_text("utf-8", errors="replace")
        return Results(outputs, reply.parts, reply.session_seconds, rest)
