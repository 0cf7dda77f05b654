"""Calling a job of the worker that lowers: an error that it names becomes its type here, with its cure."""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering import failures
from hexport.executorch.pte.failures import ProgramUnusable
from hexport.records import to_plain
from hexport.toolchain import JobFailed, Worker, WorkerError

# What a job names → the type, what happened, and what to do.
_SAID: dict[str, tuple[type[WorkerError], str, str]] = {
    "LoweringFailed": (
        failures.LoweringFailed,
        "ExecuTorch could not lower the program",
        "the lines name the operator: give it an override, another scheme or another chip; "
        "--native-log FILE keeps QNN's own words",
    ),
    "TrainingFailed": (
        failures.TrainingFailed,
        "the training failed",
        "run your function by itself to see where",
    ),
    "ShapesMisfit": (
        failures.ShapesMisfit,
        "the program cannot be made for these sizes",
        "export it with dynamic dims, or give the sizes of its example inputs",
    ),
    "ProgramUnreadable": (
        ProgramUnusable,
        "the program cannot be loaded",
        "give a .pt2 as torch.export.save writes it",
    ),
}


def call(worker: Worker, job: str, request: object) -> dict[str, Any]:
    """Run a job; what it fails with in words becomes what it is."""
    try:
        return worker.call(job, to_plain(request))
    except JobFailed as error:
        if error.kind == "OverrideUnmatched":
            raise failures.OverrideUnmatched(
                "an override fits nothing", why=error.text, next="correct the name, or leave it out"
            ) from error
        if error.kind == "NotDelegated":
            raise failures.NotDelegated(
                "no operator of the program would run on the NPU",
                why=error.text,
                next="another scheme or chip, or other operators in the module",
            ) from error
        if error.kind == "KernelMissing":
            raise failures.KernelMissing(
                "operators stay on the CPU that ExecuTorch has no kernel for",
                why=error.text,
                next="write them with other operators in the module, or, if the device's own runtime has the "
                "kernels, allow it: --allow-missing-kernels",
            ) from error
        if error.kind not in _SAID:
            raise
        kind, what, cure = _SAID[error.kind]
        raise kind(what, why=error.text, next=cure, native_log=error.native_log) from error
