"""How a program is quantised and compiled: every setting of ExecuTorch's Qualcomm backend, checked first.

The settings of the compiler are those of ``generate_htp_compiler_spec`` and
``generate_qnn_executorch_compiler_spec`` of executorch 1.5, with hexport's words for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hexport.errors import UsageError
from hexport.records import to_plain

SCHEMES = ("fp16", "8a8w", "16a8w", "16a16w", "16a4w", "16a4w_block")
FLOAT = "fp16"
BLOCK = "16a4w_block"
OBSERVERS = ("auto", "minmax", "histogram", "moving-average")
PERFORMANCE = (
    "default", "sustained-high-performance", "burst", "high-performance", "power-saver",
    "low-power-saver", "high-power-saver", "low-balanced", "balanced",
)  # fmt: skip
PROFILES = ("off", "detailed", "optrace")
OPTIMIZATION = 3
"""The only level of executorch 1.5: it is written into its library (1 where the device compiles)."""
PLATFORMS = ("x86_64", "aarch64-android")


@dataclass(frozen=True)
class OpPackage:
    """A library with operators of the user's own."""

    name: str
    path: str
    interface_provider: str
    custom_op: str
    """The torch operator: ``my_ops.mul3.default``."""
    qnn_op: str
    """What the package calls it."""
    target: str = "htp"
    platform: str = "x86_64"

    def __post_init__(self) -> None:
        if self.target not in ("htp", "cpu"):
            raise UsageError(f"an op package is for htp or cpu, not {self.target!r}")
        if self.platform not in PLATFORMS:
            raise UsageError(f"an op package is for {' or '.join(PLATFORMS)}", why=f"found {self.platform!r}")
        if self.platform == "x86_64" and not Path(self.path).is_file():
            raise UsageError(
                f"there is no op package {self.path}", why="the compiler on this machine loads it"
            )


@dataclass(frozen=True)
class Quantizing:
    """How ranges and weights become integers. None: what is best for the scheme, which the notes tell."""

    observer: str = "auto"
    """How ranges are measured: auto, minmax, histogram, moving-average."""
    range_margin: float | None = None
    """How many times as wide as on the samples; None: as 16 bits allow, or as held-out samples ask."""
    conv_per_channel: bool | None = None
    linear_per_channel: bool | None = None
    embedding_per_channel: bool = False
    act_symmetric: bool = False
    eps: float | None = None
    """The smallest step of any range."""
    block_size: int = 32
    """Of 16a4w_block: how many weights share a scale, where the layer has as many inputs."""

    def __post_init__(self) -> None:
        if self.observer not in OBSERVERS:
            raise UsageError(
                f"there is no observer {self.observer!r}", why=f"there are {', '.join(OBSERVERS)}"
            )
        if self.range_margin is not None and not 1 <= self.range_margin <= 16:
            raise UsageError(f"a range margin of {self.range_margin:g} is not between 1 and 16")
        if self.eps is not None and not 0 < self.eps < 1:
            raise UsageError(f"an eps of {self.eps:g} is not between 0 and 1")
        if self.block_size < 1:
            raise UsageError(f"a block of {self.block_size} weights", next="16, 32 and 64 are usual")


@dataclass(frozen=True)
class Compiling:
    """What Qualcomm's compiler and the runtime on the device are told."""

    optimization_level: int = OPTIMIZATION
    performance: str = "burst"
    """How fast the NPU is clocked while the program runs."""
    profile: str = "off"
    """Whether the device measures operators: off, detailed, optrace."""
    shared_buffer: bool = False
    """Inputs and outputs are in memory that the NPU shares: the application allocates them."""
    multi_contexts: bool = False
    """The parts of a program that was cut share one spill-fill buffer."""
    weight_sharing: bool = False
    """Methods share their weights."""
    dump_intermediates: bool = False
    """The device can write every intermediate tensor, to find where numbers part."""
    saver: bool = False
    """Record the calls of QNN instead of compiling: no ``.pte`` results."""
    online_prepare: bool = False
    """The device compiles the program when it is loaded."""
    dlbc: bool = False
    """Compress what goes to and from memory."""
    slc_allocator: bool = False
    """Use the system level cache, on chips that allow it."""
    conv_hmx: bool = True
    """Convolutions of few channels on the matrix unit, which may cost accuracy."""
    fold_relu: bool = True
    """A relu after a convolution becomes a part of it."""
    signed_pd: bool = False
    """Run in the signed process domain of the DSP."""
    mha2sha: bool = False
    """Attention is cut into its heads."""
    linear_to_conv2d: bool | None = None
    """Linear layers become convolutions; None: where a scheme needs it."""
    skip_mutable_buffer: bool = False
    """Buffers that the program changes stay with the CPU."""
    debug: bool = False
    """QNN's own log in all detail."""
    op_packages: tuple[OpPackage, ...] = ()

    def __post_init__(self) -> None:
        if self.performance not in PERFORMANCE:
            raise UsageError(
                f"there is no performance mode {self.performance!r}",
                why=f"there are {', '.join(PERFORMANCE)}",
            )
        if self.profile not in PROFILES:
            raise UsageError(f"there is no profile {self.profile!r}", why=f"there are {', '.join(PROFILES)}")
        self._refuse_level()
        self._refuse_combinations()

    def _refuse_level(self) -> None:
        level = 1 if self.online_prepare else OPTIMIZATION
        if self.optimization_level not in (OPTIMIZATION, level):
            raise UsageError(
                f"ExecuTorch compiles at level {level}, and not at {self.optimization_level}",
                why="the level is written into its library and cannot be set",
                next="leave it out; `hexport build` without --format pte has all levels",
            )

    def _refuse_combinations(self) -> None:
        if self.online_prepare and self.multi_contexts:
            raise UsageError(
                "online_prepare and multi_contexts exclude each other",
                why="the size of a common spill-fill buffer is known after compiling, which the device does",
            )
        if self.online_prepare and self.weight_sharing:
            raise UsageError(
                "online_prepare and weight_sharing exclude each other",
                why="weights are shared in a compiled context, and the device compiles each graph by itself",
            )
        if self.profile != "off" and self.dump_intermediates:
            raise UsageError(
                "profile and dump_intermediates exclude each other",
                why="dumping every tensor is what would be measured",
            )
        if self.saver and self.online_prepare:
            raise UsageError(
                "saver and online_prepare exclude each other", why="neither would be compiled here"
            )


@dataclass(frozen=True)
class LoweringOptions:
    """All of it."""

    quantizing: Quantizing = field(default_factory=Quantizing)
    compiling: Compiling = field(default_factory=Compiling)
    allow_cpu: bool = True
    """Operators that the NPU does not have may run on the CPU; False: that is an error."""
    allow_missing_kernels: bool = False
    """Operators on the CPU need no kernel in this executorch: the device brings its own."""

    def to_json(self) -> dict[str, object]:
        plain: dict[str, object] = to_plain(self)
        return plain


def check_scheme(scheme: str) -> str:
    """The scheme, if there is one of that name."""
    if scheme not in SCHEMES:
        raise UsageError(
            f"ExecuTorch has no scheme {scheme!r}",
            why=f"there are {', '.join(SCHEMES)}",
            next="auto is for `hexport build` without --format pte" if scheme == "auto" else "",
        )
    return scheme
