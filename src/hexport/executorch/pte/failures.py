"""What keeps a ``.pte`` from being run, compared or converted, each its own error."""

from __future__ import annotations

from hexport.errors import HexportError
from hexport.toolchain import WorkerError


class ExecutorchMissing(HexportError, LookupError):
    """No toolchain has executorch, or the one that was named has none."""

    code = "HX450"


class PteNotRunnable(HexportError):
    """The file itself tells that this machine cannot run it, or would run it wrongly."""

    code = "HX451"


class PteNotLoaded(WorkerError):
    """ExecuTorch, or the backend of one of its parts, refused the program."""

    code = "HX452"


class PteRunFailed(WorkerError):
    """The program was loaded, and running it failed."""

    code = "HX453"


class ContextTooNew(HexportError):
    """A context binary was made by a newer QNN than the one that shall load it."""

    code = "HX455"


class NotConvertible(HexportError, ValueError):
    """It cannot become a file of the other kind without losing a part of it."""

    code = "HX456"


class ProgramUnusable(WorkerError, ValueError):
    """The torch program cannot be loaded, or is not the one that the ``.pte`` was made of."""

    code = "HX457"
