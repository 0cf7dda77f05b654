"""What ``hexport.json`` holds: the contract, what was made for which chip and size, and what was proved.

These records are the format, field by field; ``docs/package.md`` explains them to other programs. A change
of meaning, and any new field, is a new ``SCHEMA_VERSION``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SCHEMA_VERSION = 1
MANIFEST = "hexport.json"

CONTEXT_MODEL = "context_model"
"""An ONNX file with EPContext nodes, which ONNX Runtime loads."""
CONTEXT_BINARY = "context_binary"
"""What Qualcomm's compiler made; a context model in the same folder names it."""
CPU_MODEL = "cpu_model"
"""The model for processors without an NPU, with the original's dynamic dims."""
SOURCE_MODEL = "source_model"
"""What was compiled, before it was: prepared and quantised, at one bucket's sizes."""
MODEL_DATA = "model_data"
"""Weights that an ONNX file in the same folder keeps outside of itself."""
REPORT = "report"
"""How the package came to be, in full."""
ROLES = (CONTEXT_MODEL, CONTEXT_BINARY, CPU_MODEL, SOURCE_MODEL, MODEL_DATA, REPORT)

Number = int | float | bool
Dim = int | str | None
"""A size, the name of a dynamic dim, or a dynamic dim without a name."""


@dataclass(frozen=True)
class Tensor:
    """An input or output as the original model declares it."""

    name: str
    dtype: str
    """As numpy spells it: ``float32``, ``int64``, ``bool``, …"""
    dims: tuple[Dim, ...] | None
    """None: the model does not even say how many."""
    optional: bool = False
    """An input with a value of its own, which the caller may leave out."""


@dataclass(frozen=True)
class FrozenInput:
    """An input of the original that has one value in what was compiled."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: tuple[Number | str, ...]
    """Flat, in C order. Text where JSON has no number: ``nan``, ``inf``, ``-inf``."""


@dataclass(frozen=True)
class Padding:
    """What an input is filled up with along one axis, to the size of a bucket."""

    input: str
    axis: int
    value: Number = 0


@dataclass(frozen=True)
class Crop:
    """How much of an output's axis is real: ``(dim * multiply + add) // divide``; the rest is padding."""

    output: str
    axis: int
    dim: str
    multiply: int = 1
    add: int = 0
    divide: int = 1


@dataclass(frozen=True)
class Contract:
    """What the package takes and gives: the original model's signature."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    frozen: tuple[FrozenInput, ...] = ()
    """Inputs that what was compiled no longer has; they are not among ``inputs``."""
    padding: tuple[Padding, ...] = ()
    crops: tuple[Crop, ...] = ()


@dataclass(frozen=True)
class Target:
    """A chip that the package has code for."""

    name: str
    """The chip's part number, ``SM8650``."""
    soc_model: int
    htp_arch: int
    backend: str = "htp"
    compatibility: str = ""
    """``ep_compatibility_info`` of the context models, for ONNX Runtime's own check."""
    load_options: dict[str, str] = field(default_factory=dict)
    """Provider options to load the context models with, beyond ``backend_type``."""


@dataclass(frozen=True)
class Bucket:
    """One fixed set of sizes."""

    name: str
    dims: dict[str, int]
    """Named dynamic dims -> size. Empty when the model has none."""
    input_shapes: dict[str, tuple[int, ...]]
    output_shapes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Artefact:
    """One file of the package."""

    role: str
    path: str
    """Relative to the manifest, with ``/``."""
    bytes: int
    sha256: str
    targets: tuple[str, ...] = ()
    """Names of the targets it serves; empty: it does not depend on the chip."""
    buckets: tuple[str, ...] = ()
    """Names of the buckets it serves; empty: it does not depend on the sizes."""
    graphs: tuple[str, ...] = ()
    """The NPU graphs that a context model calls, or a context binary holds."""


@dataclass(frozen=True)
class OutputFigure:
    """How close one output came to the original's."""

    name: str
    sqnr_db: float | str
    """Of the worst sample; ``exact`` or ``broken`` where there is no number."""
    max_abs_error: float | None = None


@dataclass(frozen=True)
class Verification:
    """One comparison with the original model on the CPU."""

    target: str
    bucket: str
    backend: str
    """What computed the figures: ``simulator``, ``npu``, ``cpu``."""
    samples: int
    min_sqnr_db: float | None
    """What was asked for; None: nothing was."""
    passed: bool
    outputs: tuple[OutputFigure, ...]
    true_dims: dict[str, int] = field(default_factory=dict)
    """The sizes of the samples when they were padded to the bucket; empty: they had the bucket's own."""


@dataclass(frozen=True)
class Toolchain:
    """The versions that made the package."""

    hexport: str
    onnxruntime: str
    onnxruntime_qnn: str
    qnn_sdk: str


@dataclass(frozen=True)
class Source:
    """The model that it was made from."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A whole ``hexport.json``."""

    source: Source
    scheme: str
    contract: Contract
    targets: tuple[Target, ...]
    buckets: tuple[Bucket, ...]
    artefacts: tuple[Artefact, ...]
    verification: tuple[Verification, ...]
    toolchain: Toolchain
    command: tuple[str, ...]
    """The call that made it, word by word."""
    notes: tuple[str, ...] = ()
    """What whoever uses it should know: nodes on the CPU, sizes that are not exact when padded."""
    created: str | None = None
    """ISO 8601, only when asked for: without it the same build writes the same bytes."""
    schema_version: int = SCHEMA_VERSION

    def target(self, name: str) -> Target:
        """The target of that name, which must be there."""
        return next(target for target in self.targets if target.name == name)

    def bucket(self, name: str) -> Bucket:
        """The bucket of that name, which must be there."""
        return next(bucket for bucket in self.buckets if bucket.name == name)
