"""What both sides are given to compile and to run, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts, zoo
from hexport.comparison.reference import Reference, find_inputs, open_reference
from hexport.comparison.wishes import Wishes
from hexport.compiling.refusals import AlreadyCompiled
from hexport.errors import UsageError
from hexport.model import Graph, Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.packaging.manifest import Contract
from hexport.runtime.padding import cut
from hexport.toolchain import Limits
from hexport.verification.inputs import Inputs, Sample, refuse_misfits
from hexport.verification.model_subject import is_compiled
from hexport.zoo.models import PREFIX

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs


@dataclass(frozen=True)
class Packaged:
    """A binary that was compiled before."""

    path: str
    refusal: str
    """Why the simulator cannot load it, whatever its version; empty: it can."""
    run: Callable[[Limits], tuple[Outputs, ...]]
    """What it gives for the samples."""


@dataclass(frozen=True)
class Subject:
    """One model at fixed sizes with samples, and their results in full precision."""

    given: str
    """What the user named."""
    what: str
    """The file that both sides compile."""
    source: Model
    soc: facts.Soc | None
    shapes: Mapping[str, Shape]
    samples: tuple[Sample, ...]
    """As ``source`` takes them."""
    reference: str
    expected: tuple[Outputs, ...]
    inputs: Inputs
    bucket: str | None = None
    contract: Contract | None = None
    true_dims: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the inputs before they were filled up to the bucket."""
    packaged: Packaged | None = None
    notes: tuple[str, ...] = ()

    def trimmed(self, outputs: tuple[Outputs, ...]) -> tuple[Outputs, ...]:
        """Without what came of filling the inputs up."""
        if self.contract is None:
            return outputs
        return tuple(cut(one, self.contract, self.true_dims) for one in outputs)


def open_model(given: str | Path, wishes: Wishes) -> Subject:
    """A model by itself, compared with itself unless another reference was named."""
    if wishes.bucket is not None:
        raise UsageError(f"--bucket {wishes.bucket}: {given} is a model, and only packages have buckets")
    name, source = str(given), read(zoo.resolve(given))
    _refuse_compiled(name, source)
    if wishes.inputs is not None and wishes.sized:
        refuse_sizes("the inputs have their own")
    soc = None if wishes.target is None else facts.find_target(wishes.target)
    original = wishes.reference if wishes.reference is not None else name
    model = (
        source if wishes.reference is None else open_reference(wishes.reference, name, source.graph.outputs)
    )
    reference = Reference(str(original), model, {})
    wanted = reference.wanted(source.graph.inputs)

    def sizes() -> dict[str, Shape]:
        given_shapes = wishes.input_shapes
        if not wishes.sized and name.startswith(PREFIX):
            given_shapes = zoo.entry(name.removeprefix(PREFIX)).input_shapes
        return fix_shapes(Graph((), wanted, {}, {}), wishes.dims, given_shapes, f"hexport compare '{name}'")

    inputs = find_inputs(wishes, wanted, {}, (name, str(original)), lambda _: True, sizes)
    samples = tuple({i: sample[i] for i in source.graph.inputs} for sample in inputs.samples)
    refuse_misfits(name, source.graph.inputs, samples[0])
    return Subject(
        given=name,
        what=name,
        source=source,
        soc=soc,
        shapes={i: array.shape for i, array in samples[0].items()},
        samples=samples,
        reference=reference.name,
        expected=reference.run(inputs, wishes.limits),
        inputs=inputs,
    )


def refuse_sizes(why: str) -> None:
    """``--dim`` or ``--input-shape`` where sizes are settled."""
    raise UsageError("--dim and --input-shape are for random inputs of a model", why=why)


def _refuse_compiled(name: str, source: Model) -> None:
    if is_compiled(source):
        raise AlreadyCompiled(
            f"{name} is compiled already",
            why="it calls a context binary, which holds code of one compiler and no model for another",
            next="compare the ONNX model that it was made from, or the package that it is in",
        )
