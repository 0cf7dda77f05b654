"""Worker processes: where native code may crash, hang and leak without harming the caller."""

from hexport.toolchain.failures import (
    JobFailed,
    WorkerCrashed,
    WorkerError,
    WorkerExited,
    WorkerNotStarted,
    WorkerOutOfMemory,
    WorkerProtocolError,
    WorkerTimeout,
)
from hexport.toolchain.interpreter import Interpreter, in_force, only_here, using
from hexport.toolchain.worker import Limits, Worker

__all__ = [
    "Interpreter",
    "JobFailed",
    "Limits",
    "Worker",
    "WorkerCrashed",
    "WorkerError",
    "WorkerExited",
    "WorkerNotStarted",
    "WorkerOutOfMemory",
    "WorkerProtocolError",
    "WorkerTimeout",
    "in_force",
    "only_here",
    "using",
]
