"""What ``compile`` refuses to do, and what it refuses to hand out."""

from __future__ import annotations

from hexport.backend.failures import BackendError
from hexport.model import ModelError


class AlreadyCompiled(ModelError, ValueError):
    """The model calls a context binary: it was compiled before, and for one chip."""

    code = "HX810"


class NothingCompiled(BackendError):
    """The compiler took no node of the model, so there is no binary."""

    code = "HX811"


class CompiledOtherwise(BackendError):
    """The binary that came out is not what was asked for."""

    code = "HX812"


class SeveralGraphs(BackendError, ValueError):
    """The model falls into several graphs, and one file holds one."""

    code = "HX813"
