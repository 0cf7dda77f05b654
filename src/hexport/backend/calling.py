"""Calling a worker's job: an error that the job names by type becomes that type here, with its cure."""

from __future__ import annotations

from typing import Any

from hexport import facts
from hexport.backend import failures
from hexport.records import to_plain
from hexport.toolchain import JobFailed, Worker

MODULE = "hexport.backend.jobs"
PROVIDER = "QNNExecutionProvider"


def call(worker: Worker, job: str, request: object) -> dict[str, Any]:
    """Run a job; an error the job names by type becomes that type here."""
    try:
        return worker.call(job, to_plain(request))
    except JobFailed as error:
        kind = getattr(failures, error.kind, None)
        if kind is None:
            raise
        what, otherwise = _SAID[error.kind]
        complaint = next((line for line in reversed(error.native_log) if line.startswith("[E:")), "")
        raise kind(
            what,
            why="\n".join(filter(None, (error.text, complaint))),
            next=cure(f"{error.text} {complaint}") or otherwise,
            native_log=error.native_log,
        ) from error


# Error type → what happened, and what to do when no error code tells more.
_SAID = {
    "EpCreationFailed": (
        "the QNN execution provider could not be created",
        "run `hexport doctor`",
    ),
    "CompileFailed": (
        "Qualcomm's compiler could not compile the model",
        "look at the native log (--native-log FILE) for the node; other sizes or another target may pass",
    ),
    "ContextUnreadable": (
        "the compiled context cannot be read",
        "it is damaged, or from a QNN SDK this one does not know; compile it again",
    ),
    "SystemLibraryUnusable": (
        "the library that reads context binaries (QnnSystem) cannot be used",
        "run `hexport doctor`",
    ),
    "RunFailed": ("the model could not be run", "check the inputs against the model's"),
    "SaverOnlyRecords": ("the Saver backend gives no results", "use another backend for numbers"),
    "ModelRejected": (
        "ONNX Runtime cannot load the model at these sizes",
        "try other sizes, or check the file with onnx.checker. If the message names a branch of an If, "
        "that branch is not valid at these sizes: if an input chooses it, fix that input with "
        "--freeze INPUT=VALUE, else export the model without it",
    ),
}


def cure(text: str) -> str:
    return "\n".join(f"{code.name} ({code.number}): {code.cure}" for code in facts.explain(text))
