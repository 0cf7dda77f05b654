"""A ``.pte`` on samples: on Qualcomm's simulator, by ExecuTorch's runtime in a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport import facts
from hexport.backend.sample_files import read_results, write_samples
from hexport.errors import UsageError
from hexport.executorch.pte import failures as pte_failures
from hexport.executorch.pte.checks import QnnPart, chip_of, refuse_unrunnable
from hexport.executorch.pte.program import QNN, read_known
from hexport.executorch.pte.signature import Signature, refuse_unusual, signature_of
from hexport.executorch.pte.toolchain import find_executorch, title
from hexport.executorch.running.requests import MODULE, PteRunReply, PteRunRequest
from hexport.records import from_plain, to_plain
from hexport.runtime.timing import Bench
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, JobFailed, Limits, Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sample = Mapping[str, NDArray[Any]]

_SIMULATED = "times of the simulator are the host's own and say nothing about an NPU"
# What a job names → what happened, and what to do.
_SAID = {
    "PteNotLoaded": (
        "ExecuTorch could not load the program",
        "the lines of the log name the part; lower the model again with the toolchain's executorch",
    ),
    "BackendMissing": (
        "a part of the program is for a backend that this executorch does not have",
        "lower the model for the NPU alone, or run it where that backend is",
    ),
    "OperatorMissing": (
        "operators of the program are not among ExecuTorch's own kernels",
        "have them on the NPU, or lower a module without them",
    ),
    "PteRunFailed": ("the program could not be run", "the lines of the log name the reason"),
}


@dataclass(frozen=True)
class PteRun:
    """What came out of every sample, and who computed it."""

    outputs: tuple[dict[str, NDArray[Any]], ...]
    npu_parts: int
    cpu_operators: int
    """Calls of ExecuTorch's own kernels, and parts that other backends run on the CPU."""
    chip: str
    notes: tuple[str, ...]
    bench: Bench | None = None


@dataclass(frozen=True)
class LoadedPte:
    """A method that this machine can run, by what its file tells."""

    path: Path
    signature: Signature
    parts: tuple[QnnPart, ...]
    interpreter: Interpreter
    limits: Limits | None = None

    @property
    def chip(self) -> str:
        return chip_of(self.parts)

    def run(self, samples: Sequence[Mapping[str, object]], measured_runs: int = 0) -> PteRun:
        """In a worker that is gone afterwards."""
        method = self.signature.method
        arrays = [self.signature.take(sample) for sample in samples]
        with temporary_folder() as folder:
            files = write_samples(arrays, folder)
            request = PteRunRequest(
                str(self.path.resolve()),
                method.name,
                files,
                tuple(tensor.order if tensor is not None else () for tensor in method.inputs),
                tuple(dict.fromkeys(delegate.backend for delegate in method.delegates)),
                method.operators,
                measured_runs,
            )
            with Worker(MODULE, folder / "native.log", limits=self.limits, python=self.interpreter) as worker:
                reply = from_plain(PteRunReply, _call(worker, request, self.path))
            outputs = read_results(files, self.signature.output_names)
        others = [delegate.backend for delegate in method.delegates if delegate.backend != QNN]
        bench = _bench(reply, arrays[0]) if measured_runs else None
        return PteRun(
            outputs,
            len(self.parts),
            method.kernel_calls + len(others),
            self.chip,
            (*self._said(others), *self.signature.notes, *_strange_numbers(arrays)),
            bench,
        )

    def _said(self, others: Sequence[str]) -> list[str]:
        method, by = self.signature.method, title(self.interpreter)
        if not self.parts:
            lines = [f"nothing of {self.path.name} is for the NPU: {by} computed all of it on the CPU"]
        else:
            where = f"the simulator of {self.chip}" if self.chip else "the simulator"
            count = f"{len(self.parts)} {'part' if len(self.parts) == 1 else 'parts'}"
            rest = f", {method.kernel_calls} operators on the CPU" if method.kernel_calls else ""
            lines = [f"{self.path.name} ran on {where} by {by}: {count} on the NPU{rest}"]
        return lines + [f"{name} computed a part of it, on the CPU" for name in dict.fromkeys(others)]


def load_pte(
    path: str | Path,
    *,
    method: str | None = None,
    target: str | int | None = None,
    toolchain: str | None = None,
    limits: Limits | None = None,
) -> LoadedPte:
    """Look at the file; what cannot be run is an error before native code sees it."""
    program = read_known(Path(path))
    signature = signature_of(program, method)
    refuse_unusual(program, signature.method)
    interpreter = find_executorch(toolchain)
    parts = refuse_unrunnable(program, signature.method, interpreter, limits)
    _refuse_other_chip(program.path, target, parts)
    return LoadedPte(program.path, signature, parts, interpreter, limits)


def ones(signature: Signature) -> dict[str, NDArray[Any]]:
    """Inputs to measure with."""
    tensors = zip(signature.contract.inputs, signature.method.inputs, strict=True)
    return {named.name: np.ones(one.sizes if one else (), named.dtype) for named, one in tensors}


def _refuse_other_chip(path: Path, target: str | int | None, parts: tuple[QnnPart, ...]) -> None:
    """The simulator would run it all the same, and prove nothing."""
    models = {part.options.soc_model for part in parts if part.options is not None}
    if target is None or not models:
        return
    asked = facts.find_target(target)
    if asked.soc_model not in models:
        raise UsageError(
            f"{path} is for {chip_of(parts)}, and --target says {asked.chip}",
            why="the code in a .pte is for one chip",
            next=f"leave --target out, or lower the model for {asked.chip}",
        )


def _call(worker: Worker, request: PteRunRequest, path: Path) -> dict[str, Any]:
    try:
        return worker.call("run_pte", to_plain(request))
    except JobFailed as error:
        if error.kind not in _SAID:
            raise
        what, cure = _SAID[error.kind]
        failed = error.kind == "PteRunFailed"
        kind = pte_failures.PteRunFailed if failed else pte_failures.PteNotLoaded
        raise kind(f"{path}: {what}", why=error.text, next=cure, native_log=error.native_log) from error


def _strange_numbers(samples: Sequence[Sample]) -> list[str]:
    names = {
        name: None
        for sample in samples
        for name, array in sample.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    }
    return [
        f"input {name!r} has NaN or infinities, which the NPU computes as large numbers" for name in names
    ]


def _bench(reply: PteRunReply, sample: Sample) -> Bench:
    times = [seconds * 1e3 for seconds in reply.seconds]
    median, p90, p99 = (float(np.percentile(times, share)) for share in (50, 90, 99))
    own = 0
    if sys.platform == "linux":
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Bench(
        "simulator",
        {name: array.shape for name, array in sample.items()},
        reply.load_seconds * 1e3,
        reply.first_seconds * 1e3,
        median,
        p90,
        p99,
        len(times),
        1,
        len(times) / (sum(times) / 1e3),
        None if reply.memory_bytes is None else (reply.memory_bytes + own) / 2**20,
        _SIMULATED,
    )
