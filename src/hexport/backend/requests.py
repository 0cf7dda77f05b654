"""What is asked of a worker and what it answers: plain records on both sides of the pipe."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ShapesRequest:
    """Load on the CPU and tell the type of every tensor of a model that exposes them all."""

    model: str
    data_folder: str


@dataclass(frozen=True)
class InferredTensor:
    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class ShapesReply:
    tensors: tuple[InferredTensor, ...]
    not_runnable: str = ""
    """Why the CPU has no kernel for the model, if so; the NPU may still have one."""


@dataclass(frozen=True)
class SampleFiles:
    """Tensors travel by file: sample ``i`` is ``i.npz`` in ``inputs``, its results ``i.npz`` in ``outputs``.

    Arrays are in the order of ``input_names``: names of tensors may hold anything, and npz keys may not.
    """

    inputs: str
    outputs: str
    count: int
    input_names: tuple[str, ...]


@dataclass(frozen=True)
class SessionRequest:
    """Create one session on the QNN provider."""

    model: str
    data_folder: str
    provider_options: dict[str, str]
    session_options: dict[str, str] = field(default_factory=dict)
    run_once: bool = False
    """Also run it on ones, and give the first output's values back."""
    samples: SampleFiles | None = None
    """Also run it on these: what was compiled is what is run, and it is compiled once."""


@dataclass(frozen=True)
class AssignedNode:
    name: str
    op: str
    domain: str


@dataclass(frozen=True)
class AssignedPart:
    """A run of nodes that one provider took, from onnxruntime's assignment API."""

    provider: str
    nodes: tuple[AssignedNode, ...]


@dataclass(frozen=True)
class SessionReply:
    providers: tuple[str, ...]
    parts: tuple[AssignedPart, ...]
    seconds: float
    values: tuple[float, ...] = ()
    output_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRequest:
    """Create one session and run it on samples. No provider options: on the CPU."""

    model: str
    data_folder: str
    samples: SampleFiles
    provider_options: dict[str, str] = field(default_factory=dict)
    session_options: dict[str, str] = field(default_factory=dict)
    optimize: bool = True
    """ONNX Runtime's graph optimisations. Off for the reference of a QDQ model, whose results they shift."""


@dataclass(frozen=True)
class RunReply:
    output_names: tuple[str, ...]
    parts: tuple[AssignedPart, ...]
    session_seconds: float


@dataclass(frozen=True)
class OptimizeRequest:
    """Write what ONNX Runtime's basic optimisations make of a model."""

    model: str
    output: str


@dataclass(frozen=True)
class CompileRequest:
    """Write the EPContext form of one model; paths are relative to the worker's folder."""

    model: str
    data_folder: str
    output: str
    provider_options: dict[str, str]
    session_options: dict[str, str] = field(default_factory=dict)
    embed: bool = False


@dataclass(frozen=True)
class CompileReply:
    seconds: float
