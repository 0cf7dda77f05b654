"""The ways a worker can end badly, each its own type, with the last words of the native code."""

from __future__ import annotations

from hexport.errors import HexportError


class WorkerError(HexportError):
    """A worker process did not give an answer."""

    code = "HX300"

    def __init__(self, what: str, *, why: str = "", next: str = "", native_log: tuple[str, ...] = ()) -> None:  # noqa: A002
        super().__init__(what, why=why, next=next)
        self.native_log = native_log

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "native_log": list(self.native_log)}


class WorkerCrashed(WorkerError):
    """Ended by a signal: the native code crashed."""

    code = "HX301"


class WorkerExited(WorkerError):
    """Native code called exit, or the interpreter ended, before there was an answer."""

    code = "HX302"


class WorkerTimeout(WorkerError, TimeoutError):
    """No answer within the time limit; the worker was ended."""

    code = "HX303"


class WorkerOutOfMemory(WorkerError, MemoryError):
    """The memory limit was passed; the worker was ended."""

    code = "HX304"


class WorkerProtocolError(WorkerError):
    """What came over the pipe was not a message of this protocol."""

    code = "HX305"


class WorkerNotStarted(WorkerError):
    """The interpreter could not be started, or ended before it could say hello."""

    code = "HX306"


class JobFailed(WorkerError):
    """The job raised an error of its own, which travels here by its type's name and its text."""

    code = "HX307"

    def __init__(self, kind: str, text: str, *, native_log: tuple[str, ...] = ()) -> None:
        super().__init__(
            f"the worker's job failed: {kind}",
            why=text,
            next="if the model is sound, report this with the native log (--native-log FILE)",
            native_log=native_log,
        )
        self.kind = kind
        self.text = text
