"""What the backend can refuse or pretend, each its own error with the last native log lines."""

from __future__ import annotations

from hexport.toolchain.failures import WorkerError


class BackendError(WorkerError):
    """The backend could not do what was asked."""

    code = "HX500"


class EpCreationFailed(BackendError):
    """The execution provider could not be created. Plain onnxruntime would retry on the CPU."""

    code = "HX501"


class SilentCpuRetry(BackendError):
    """A session was given back that does not have the QNN provider at all."""

    code = "HX502"


class BackendNotInitialised(BackendError):
    """The session exists, but the backend library did not start: every node would run on the CPU."""

    code = "HX503"


class NotCut(BackendError):
    """The parts that the provider cut the model into were refused: every node would run on the CPU."""

    code = "HX518"


class CompileFailed(BackendError):
    """The backend took the nodes, then could not make a graph of them."""

    code = "HX504"


class ModelRejected(BackendError, ValueError):
    """ONNX Runtime itself cannot load the model, on any processor."""

    code = "HX505"


class WrongTarget(BackendError):
    """The compiler made code for another chip than the one asked for."""

    code = "HX506"


class ContextUnreadable(BackendError, ValueError):
    """A context binary is damaged, or of a kind that this SDK cannot read."""

    code = "HX507"


class SystemLibraryUnusable(BackendError):
    """The QnnSystem library, which reads context binaries, is missing or too old."""

    code = "HX508"


class RunFailed(BackendError):
    """The session was made, and running it failed."""

    code = "HX509"


class SaverOnlyRecords(BackendError):
    """Numbers were asked of the Saver backend, which only writes calls to a file."""

    code = "HX510"
