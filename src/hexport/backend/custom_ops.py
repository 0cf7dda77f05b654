"""Libraries of ONNX Runtime with operators of their own, for the sessions of a worker.

Such an operator runs on the CPU; on the NPU it needs a library of QNN's, too (``op_packages``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hexport.backend.failures import BackendError
from hexport.errors import UsageError
from hexport.toolchain import JobFailed, Worker, WorkerCrashed, WorkerExited

_KIND = "CustomOpsUnusable"
_ADVICE = "give a library built for this system that exports RegisterCustomOps"


class CustomOpsUnusable(BackendError):
    """A library of operators cannot be loaded, or is none."""

    code = "HX520"


def find_libraries(given: Sequence[str | Path]) -> tuple[str, ...]:
    """Their whole paths: a worker has another current folder. Code is only run in a worker."""
    found: dict[str, str] = {}
    for name in map(str, given):
        path = Path(name).absolute()
        if not path.is_file():
            raise UsageError(f"--custom-ops {name}: there is no such file", next="name the library itself")
        key = os.path.normcase(path.resolve())
        if key in found:
            raise UsageError(f"--custom-ops {name}: is given twice", why=f"it is {found[key]}")
        found[key] = str(path)
    return tuple(found.values())


def use_custom_ops(worker: Worker, libraries: Sequence[str]) -> None:
    """From now on every session of ``worker`` knows the operators of ``libraries``."""
    for library in libraries:
        try:
            worker.call("load_custom_ops", {"library": library})
        except JobFailed as error:
            if error.kind != _KIND:
                raise
            raise _unusable(library, error.text, error.native_log) from error
        except (WorkerCrashed, WorkerExited) as error:
            raise _unusable(library, f"{error.what}: {error.why}", error.native_log) from error


def _unusable(library: str, why: str, log: Sequence[str]) -> CustomOpsUnusable:
    return CustomOpsUnusable(
        f"ONNX Runtime cannot use the operators of {library}", why=why, next=_ADVICE, native_log=tuple(log)
    )
