"""Why a package does not run, each its own error."""

from __future__ import annotations

from hexport.errors import HexportError


class RunError(HexportError):
    """A package or model could not be run."""

    code = "HX910"


class BadInput(RunError, ValueError):
    """What was given does not fit: a name, a type, a rank, a size."""

    code = "HX911"


class NoBucketFits(BadInput):
    """The sizes fit nothing that was compiled, and the CPU may or can not step in."""

    code = "HX912"


class Incompatible(RunError):
    """The package is for another machine: a newer SDK, a higher HTP generation, another backend."""

    code = "HX913"


class BackendMissing(RunError):
    """What was asked for is not on this machine: no NPU, no simulator, no model for the CPU."""

    code = "HX914"


class InferenceFailed(RunError):
    """ONNX Runtime or the backend raised an error while it ran."""

    code = "HX915"


class EngineLost(RunError):
    """The NPU or the worker was lost, and again after everything was made anew: there is no answer."""

    code = "HX916"


class SessionClosed(RunError):
    """A session was used after it was closed."""

    code = "HX917"


class Busy(RunError):
    """As many requests wait already as may wait; nothing was begun."""

    code = "HX918"


class DeadlineMissed(RunError, TimeoutError):
    """A request was not answered within the time that it was given; there is no answer."""

    code = "HX919"
