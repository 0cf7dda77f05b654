"""Ask the real compiler about one staged model: who takes which node, why not, and what comes out.

One worker process answers: it crashes, hangs or runs out of memory alone, and every way it can fail
or pretend becomes an error with its own type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts
from hexport.backend import failures
from hexport.backend.calling import MODULE, PROVIDER, call, cure
from hexport.backend.context_binary import ContextBinary, ContextReply, ContextRequest
from hexport.backend.custom_ops import use_custom_ops
from hexport.backend.native_log import NativeLog, read_native_log
from hexport.backend.op_trace import OpTrace
from hexport.backend.options import validate_options
from hexport.backend.requests import (
    AssignedPart,
    SampleFiles,
    SessionReply,
    SessionRequest,
    ShapesReply,
    ShapesRequest,
)
from hexport.backend.sample_files import read_results, write_samples
from hexport.backend.tracing import read_trace, trace_options, was_asked
from hexport.backend.where import Where, dead, refuse_not_cut
from hexport.model import dtypes
from hexport.model.graph import TensorType
from hexport.model.staging import StagedModel
from hexport.records import from_plain
from hexport.toolchain import Limits, Worker, WorkerCrashed, WorkerError
from hexport.toolchain.last_words import last_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample


_WRITTEN = {"ep.context_enable": "1", "ep.context_embed_mode": "0"}


@dataclass(frozen=True)
class Evidence:
    """All the backend said about one model."""

    parts: tuple[AssignedPart, ...]
    trace: OpTrace
    log: NativeLog
    types: Mapping[str, TensorType]
    compile_seconds: float
    context_bytes: int | None
    contexts: tuple[ContextBinary, ...]
    """Read back from what the compiler wrote; empty when nothing was compiled."""
    notes: tuple[str, ...]
    outputs: tuple[dict[str, NDArray[np.generic]], ...] = ()
    """What came out for the samples that were given."""


def probe(
    staged: StagedModel,
    where: Where,
    workdir: Path,
    *,
    samples: Sequence[Sample] = (),
    limits: Limits | None = None,
    options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str] = (),
) -> Evidence:
    """Compile ``staged`` for ``where``, run it on ``samples``, and collect every piece of evidence.

    ``workdir`` must be empty. Only what the NPU compiles is written and read back: QNN's CPU backend answers
    the wish for a context by leaving every node to ONNX Runtime's CPU, without a word.
    """
    limits = limits or Limits()
    log = workdir / "native.log"
    files = write_samples(samples, workdir) if samples else None
    request = _request(staged, where, workdir, options or {}, files)
    notes: list[str] = []
    with Worker(MODULE, log, limits=limits) as worker:
        use_custom_ops(worker, custom_ops)
        types = infer_types(worker, staged, notes)
        try:
            reply = _create(worker, request)
            contexts = _read_contexts(worker, workdir)
        except (failures.CompileFailed, WorkerCrashed) as error:
            if not request.session_options:
                raise
            # Writing the context fails for some models that compile: names twice in an If's or Loop's body.
            reply, contexts = _create_without_context(request, custom_ops, log, limits, error), ()
            notes.append(f"the model compiles, but its context could not be saved: {error.why or error.what}")
    native = read_native_log(log)
    _refuse_pretence(where, reply, native, workdir, log)
    if where.soc is not None:
        _refuse_wrong_target(contexts, where.soc, log)
    return Evidence(
        parts=reply.parts,
        trace=read_trace(workdir, native),
        log=native,
        types=types,
        compile_seconds=reply.seconds,
        context_bytes=sum(file.stat().st_size for file in _binaries(workdir)) if contexts else None,
        contexts=contexts,
        notes=tuple(notes),
        outputs=read_results(files, reply.output_names) if files else (),
    )


def _request(
    staged: StagedModel,
    where: Where,
    workdir: Path,
    options: Mapping[str, str],
    files: SampleFiles | None,
) -> SessionRequest:
    provider = {**where.options, **trace_options(workdir), **options}
    session = _WRITTEN | {"ep.context_file_path": str(workdir / "context.onnx")} if where.soc else {}
    accepted = dict(validate_options(provider, session))
    return SessionRequest(str(staged.model), staged.data_folder_if_needed, accepted, session, samples=files)


def infer_types(worker: Worker, staged: StagedModel, notes: list[str]) -> dict[str, TensorType]:
    request = ShapesRequest(str(staged.exposed), staged.data_folder_if_needed)
    reply = from_plain(ShapesReply, call(worker, "infer_shapes", request))
    if reply.not_runnable:
        notes.append(
            f"shapes and MACs are not known: ONNX Runtime's CPU cannot run this model: {reply.not_runnable}"
        )
    return {t.name: TensorType(dtypes.from_runtime(t.dtype), t.shape) for t in reply.tensors}


def _create(worker: Worker, request: SessionRequest) -> SessionReply:
    return from_plain(SessionReply, call(worker, "create_session", request))


def _create_without_context(
    request: SessionRequest, custom_ops: Sequence[str], log: Path, limits: Limits, first: WorkerError
) -> SessionReply:
    try:
        with Worker(MODULE, log, limits=limits) as worker:
            use_custom_ops(worker, custom_ops)
            return _create(worker, replace(request, session_options={}))
    except WorkerError:
        raise first from None


def _refuse_pretence(where: Where, reply: SessionReply, native: NativeLog, workdir: Path, log: Path) -> None:
    if PROVIDER not in reply.providers:
        raise failures.SilentCpuRetry(
            "the session was created without the QNN provider",
            why=f"its providers are {', '.join(reply.providers)}: onnxruntime fell back to the CPU",
            next="run `hexport doctor`",
            native_log=last_words(log),
        )
    refuse_not_cut(native, log)
    if native.setup_failure or not was_asked(workdir, native):
        raise dead(where, native.setup_failure, log, cure(native.setup_failure))


def _binaries(workdir: Path) -> list[Path]:
    return sorted(workdir.glob("context*.bin"))


def _read_contexts(worker: Worker, workdir: Path) -> tuple[ContextBinary, ...]:
    replies = (
        from_plain(ContextReply, call(worker, "read_context", ContextRequest(str(file))))
        for file in _binaries(workdir)
    )
    return tuple(binary for reply in replies for binary in reply.binaries)


def _refuse_wrong_target(contexts: tuple[ContextBinary, ...], target: facts.Soc, log: Path) -> None:
    """The compiler makes code for v68 when it does not know the chip, and warns nobody."""
    for binary in contexts:
        if (binary.soc_model, binary.htp_arch) != (target.soc_model, target.htp_arch):
            raise failures.WrongTarget(
                f"asked for {target.chip} (SoC {target.soc_model}, v{target.htp_arch})",
                why=f"the compiler made code for SoC {binary.soc_model}, v{binary.htp_arch}",
                next="use an onnxruntime-qnn release that knows the chip",
                native_log=last_words(log),
            )
