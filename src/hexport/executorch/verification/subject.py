"""A ``.pte`` as one side of a comparison whose other side is an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hexport.executorch.running.loading import LoadedPte, load_pte
from hexport.executorch.verification.verb import sizes_of, wanted_of
from hexport.model.dims import Shape
from hexport.model.graph import Graph, TensorType
from hexport.toolchain import Limits
from hexport.verification.inputs import Inputs, refuse_misfits
from hexport.verification.subject import Ran


@dataclass(frozen=True)
class PteSubject:
    """A method that the simulator can run."""

    given: str
    loaded: LoadedPte
    frozen: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    asked_db: float | None = None
    own_reference: Path | None = None

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        return wanted_of(self.loaded)

    @property
    def made_from(self) -> str:
        return self.given

    def takes(self, shapes: Mapping[str, Shape]) -> bool:
        return set(self.inputs) <= set(shapes)

    def sizes(self, wanted: Graph) -> dict[str, Shape]:
        own = sizes_of(self.loaded)
        return {name: own[name] for name in wanted.inputs if name in own}

    def run(self, inputs: Inputs, limits: Limits) -> Ran:  # noqa: ARG002 - they are settled by now
        samples = [{name: sample[name] for name in self.inputs} for sample in inputs.samples]
        refuse_misfits(self.given, self.inputs, samples[0])
        ran = self.loaded.run(samples)
        return Ran(
            ran.outputs, self.given, ran.npu_parts, ran.cpu_operators, ran.chip or None, notes=ran.notes
        )


def open_pte(thing: str | Path, target: str | int | None, method: str | None, limits: Limits) -> PteSubject:
    """The method, if it can be run here."""
    return PteSubject(str(thing), load_pte(thing, method=method, target=target, limits=limits))
