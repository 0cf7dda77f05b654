"""Sessions that are made for the files their backend writes, and not to compute: Saver's calls, IR's DLC.

The files are whole when the session is gone, which it is when the worker's job has ended (measured with
onnxruntime-qnn 2.3 and 2.7). Paths are relative, so that the same model gives the same names of graphs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hexport import facts
from hexport.backend import failures
from hexport.backend.calling import MODULE, PROVIDER, call, cure
from hexport.backend.custom_ops import use_custom_ops
from hexport.backend.native_log import NativeLog, read_native_log
from hexport.backend.probe import Evidence, infer_types
from hexport.backend.requests import SessionReply, SessionRequest
from hexport.backend.tracing import read_trace, trace_options, was_asked
from hexport.backend.where import refuse_not_cut
from hexport.facts.backends import find_backend
from hexport.model.staging import StagedModel
from hexport.records import from_plain
from hexport.toolchain import Limits, Worker
from hexport.toolchain.last_words import last_words


def dump(
    staged: StagedModel,
    provider: Mapping[str, str],
    workdir: Path,
    *,
    custom_ops: Sequence[str] = (),
    limits: Limits | None = None,
) -> Evidence:
    """Make a session in ``workdir``, where the files will be, and let it go. What it says of each node."""
    log = workdir / "native.log"
    model = Path(os.path.relpath(staged.model, workdir)).as_posix()
    request = SessionRequest(model, staged.data_folder_if_needed, {**provider, **trace_options(workdir)})
    notes: list[str] = []
    with Worker(MODULE, log, limits=limits) as worker:
        use_custom_ops(worker, custom_ops)
        types = infer_types(worker, staged, notes)
        reply = from_plain(SessionReply, call(worker, "create_session", request))
    native = read_native_log(log)
    _refuse_pretence(reply, native, workdir)
    return Evidence(
        parts=reply.parts,
        trace=read_trace(workdir, native),
        log=native,
        types=types,
        compile_seconds=reply.seconds,
        context_bytes=None,
        contexts=(),
        notes=tuple(notes),
    )


def saver_library() -> str:
    """Its name for ``qnn_saver_path``; the provider finds it in its own folder."""
    saver = find_backend("saver")
    assert saver is not None
    windows = facts.current_platform().startswith("windows")
    return f"{saver.library}.dll" if windows else f"lib{saver.library}.so"


def _refuse_pretence(reply: SessionReply, native: NativeLog, workdir: Path) -> None:
    refuse_not_cut(native, workdir / "native.log")
    started = PROVIDER in reply.providers and was_asked(workdir, native)
    if native.setup_failure or not started:
        raise failures.BackendNotInitialised(
            "the backend did not start, so nothing was written",
            why=native.setup_failure or "it was asked about no node",
            next=cure(native.setup_failure) or "run `hexport doctor`",
            native_log=last_words(workdir / "native.log"),
        )
