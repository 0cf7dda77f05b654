"""What must come out: the original on the CPU, in full precision, on inputs that both sides are given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hexport.comparison.wishes import Wishes
from hexport.errors import UsageError
from hexport.model import Model, TensorType
from hexport.model.dims import Shape
from hexport.toolchain import Limits
from hexport.verification import inputs as given_inputs
from hexport.verification.inputs import Inputs
from hexport.verification.reference import read_reference, run_reference

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs


@dataclass(frozen=True)
class Reference:
    """The original, and the inputs that were frozen since."""

    name: str
    model: Model
    frozen: Mapping[str, NDArray[Any]]

    def wanted(self, takes: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """What samples must hold for it and for a model that ``takes`` these."""
        return {n: t for n, t in {**self.model.graph.inputs, **takes}.items() if n not in self.frozen}

    def run(self, inputs: Inputs, limits: Limits) -> tuple[Outputs, ...]:
        return run_reference(self.name, self.model, self.frozen, inputs, limits)


def open_reference(given: str | Path, compared: str, outputs: Collection[str]) -> Model:
    """The original that the user named, if what is compared can have been made from it."""
    found = read_reference(given)
    if not set(found.graph.outputs) & set(outputs):
        raise UsageError(
            f"{compared} and the reference {given} have no output in common",
            why=f"{', '.join(outputs)} on one side, {', '.join(found.graph.outputs)} on the other",
            next="name the model that it was made from",
        )
    return found


def find_inputs(
    wishes: Wishes,
    wanted: Mapping[str, TensorType],
    frozen: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    takes: Callable[[Mapping[str, Shape]], bool],
    sizes: Callable[[], Mapping[str, Shape]],
) -> Inputs:
    """The user's own; else the zoo's, if one of ``names`` is of the zoo; else random ones."""
    given_inputs.check_count(wishes.samples)
    if wishes.inputs is not None:
        return given_inputs.read_inputs(wishes.inputs, wanted, frozen, wishes.samples)
    for name in () if wishes.sized else names:
        found = given_inputs.zoo_inputs(name, wanted, wishes.samples)
        if found is not None and takes(found.shapes):
            return found
    return given_inputs.random_inputs(wanted, sizes(), wishes.samples)
