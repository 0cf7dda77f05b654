"""What is verified: a thing that takes samples and gives outputs, on a QNN backend or the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from hexport import facts
from hexport.backend.running import Results, run_on, run_on_cpu
from hexport.backend.where import GPU, QNN_CPU, Where, on_chip
from hexport.errors import UsageError
from hexport.model import Model
from hexport.model.dims import Shape
from hexport.model.graph import Graph, TensorType
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs
    from hexport.verification.inputs import Inputs, Sample

SIMULATOR, CPU = "simulator", "cpu"
BACKENDS = (SIMULATOR, CPU, QNN_CPU, GPU)
_QUANTISING = frozenset(("QuantizeLinear", "DequantizeLinear"))


@dataclass(frozen=True)
class Ran:
    """What came out, and what was run for it."""

    outputs: tuple[Outputs, ...]
    what: str
    npu_nodes: int
    cpu_nodes: int
    target: str | None = None
    bucket: str | None = None
    true_dims: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


class Subject(Protocol):
    """A package or a model."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """What it takes."""

    @property
    def frozen(self) -> Mapping[str, NDArray[Any]]:
        """Inputs of the original that it no longer has, with the one value that they have in it."""

    @property
    def made_from(self) -> str:
        """What the user called the original; ``zoo:…`` for a model of the zoo."""

    @property
    def own_reference(self) -> Path | None:
        """What it is compared with when the user names nothing."""

    @property
    def asked_db(self) -> float | None:
        """The accuracy it was made for, if that is known."""

    def takes(self, shapes: Mapping[str, Shape]) -> bool:
        """Whether inputs of these shapes can be run."""

    def sizes(self, wanted: Graph) -> dict[str, Shape]:
        """Shapes for random inputs."""

    def run(self, inputs: Inputs, limits: Limits) -> Ran:
        """The outputs for these inputs, at their own sizes."""


def run_model(
    model: Path,
    samples: Sequence[Sample],
    where: Where | facts.Soc | None,
    limits: Limits,
    *,
    optimize: bool = True,
    options: Mapping[str, str] | None = None,
    data_folder: str = "",
) -> Results:
    """On a QNN backend, which for a chip is the simulator; on the CPU where neither is given."""
    if where is None:
        return run_on_cpu(model, samples, optimize=optimize, data_folder=data_folder, limits=limits)
    where = where if isinstance(where, Where) else on_chip(where)
    return run_on(model, samples, where, options=options, data_folder=data_folder, limits=limits)


def describe(
    results: Results, what: str, simulated: bool, title: str = "the NPU"
) -> tuple[int, int, list[str]]:
    """Nodes on the backend and on the CPU, and what to say of it."""
    taken, left = results.taken, results.left
    if not simulated:
        return taken, left, []
    if not taken:
        return taken, left, [f"nothing of {what} ran on {title}: the CPU's results were compared"]
    if left:
        return taken, left, [f"{left} nodes of {what} ran on the CPU: {results.left_operators}"]
    return taken, left, [f"some nodes of {what} ran on the CPU"] if results.unlisted_rest else []


def refuse_target(target: str | int | None) -> None:
    """Nothing that is asked for is left out without a word."""
    if target is not None:
        raise UsageError(f"--target {target} has no meaning with --backend cpu", next="give one of them")


def is_quantised(source: Model) -> bool:
    """Whether ONNX Runtime's fusions would shift its results."""
    return any(node.op in _QUANTISING for node in source.graph.walk())
