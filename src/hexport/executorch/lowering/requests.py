"""What is asked of the worker that lowers programs, and what it answers: plain records on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hexport.executorch.lowering.options import LoweringOptions
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.training import Training
from hexport.executorch.pte.sidecar import Method, TensorSpec

MODULE = "hexport.executorch.lowering.jobs"


@dataclass(frozen=True)
class DescribeRequest:
    """Load a program and tell what it takes and gives."""

    program: str


@dataclass(frozen=True)
class InputDims:
    """An input as the program declares it; a dim that may vary is a name."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    example: tuple[int, ...]


@dataclass(frozen=True)
class DescribeReply:
    inputs: tuple[InputDims, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[tuple[str, str, str], ...]
    """Name, operator and module of every operator, for overrides."""


@dataclass(frozen=True)
class MethodRequest:
    """One method of the file: a program at one set of sizes, with its samples."""

    name: str
    program: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Input → its sizes; those that are not here are of the example inputs."""
    samples: str = ""
    """A folder of ``0.npz``, ``1.npz``, …, arrays in the order of the inputs; empty: none."""
    count: int = 0
    """Of the samples."""


@dataclass(frozen=True)
class QuantizeRequest:
    """How methods become integers, if they do."""

    scheme: str
    chip: str
    """ExecuTorch's name of it."""
    htp_arch: int
    fp16: bool
    """Whether the chip computes float at all."""
    overrides: tuple[Override, ...] = ()
    training: Training | None = None
    import_from: tuple[str, ...] = ()
    """Folders that the user's own modules are in."""
    min_sqnr: float | None = None
    """What inputs unlike the samples shall have; None: nothing is raised for them."""


@dataclass(frozen=True)
class LowerRequest:
    """Make one ``.pte`` of one or more methods."""

    methods: tuple[MethodRequest, ...]
    quantize: QuantizeRequest
    options: LoweringOptions
    output: str
    log: str
    """Where this worker's own words go: reasons are read from there."""
    saver: str = ""
    """The folder for the record of calls."""
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Method → where its quantised program is saved."""


@dataclass(frozen=True)
class LowerReply:
    methods: tuple[Method, ...]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]
    """Step → how long it took."""
    quantised_db: Mapping[str, float | None]
    """Method → how close the quantised program is to the float one, on held-out samples; None: unknown."""
    options: LoweringOptions
    """As they were applied."""
    compiled: bool = True


@dataclass(frozen=True)
class ReferenceRequest:
    """Run a program in float and, if a scheme is given, quantised, on samples."""

    method: MethodRequest
    inputs: str
    """The folder of the samples to run on."""
    count: int
    eager: str
    """Where the float outputs go."""
    quantize: QuantizeRequest | None = None
    options: LoweringOptions = field(default_factory=LoweringOptions)
    quantised: str = ""


@dataclass(frozen=True)
class ReferenceReply:
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...]
