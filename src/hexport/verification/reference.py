"""What a result is held against: the original on the CPU, in full precision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hexport import zoo
from hexport.backend.running import run_on_cpu
from hexport.errors import UsageError
from hexport.model import Model, read
from hexport.toolchain import Limits
from hexport.verification import inputs as given_inputs
from hexport.verification.inputs import Inputs
from hexport.verification.model_subject import is_compiled
from hexport.verification.subject import is_quantised

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs


def read_reference(given: str | Path) -> Model:
    """The model that the user named."""
    if Path(given).is_dir():
        raise UsageError(f"--reference {given} is a folder", next="name the original ONNX model")
    found = read(zoo.resolve(given))
    if is_compiled(found):
        raise UsageError(
            f"--reference {given} is compiled for the NPU",
            why="the reference runs on the CPU, in full precision",
            next="name the original ONNX model",
        )
    return found


def run_reference(
    name: str, source: Model, frozen: Mapping[str, NDArray[Any]], inputs: Inputs, limits: Limits
) -> tuple[Outputs, ...]:
    """Its outputs on every sample; inputs that were frozen since have their values."""
    takes = {*source.graph.inputs, *source.defaults}
    samples = [
        {name: array for name, array in {**sample, **frozen}.items() if name in takes}
        for sample in inputs.samples
    ]
    given_inputs.refuse_misfits(f"the reference {name}", source.graph.inputs, samples[0])
    return run_on_cpu(source.path, samples, optimize=not is_quantised(source), limits=limits).outputs
