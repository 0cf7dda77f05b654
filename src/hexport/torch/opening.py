"""From what the user names to an ONNX file with all that came along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
from hexport.torch.description import TorchModel, checked, describe
from hexport.torch.naming import PICKLES, PROGRAM, is_torch_name, split_factory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn


@dataclass(frozen=True)
class Opened:
    """An exported model, and what its description has for the steps to come."""

    path: Path
    notes: tuple[str, ...]
    calib: object
    metric: Any
    max_drop: float | None
    example: Mapping[str, NDArray[np.generic]]


def is_torch(model: object) -> bool:
    """Whether it is PyTorch's: a description, or a name of one."""
    if isinstance(model, TorchModel):
        return True
    return isinstance(model, (str, Path)) and is_torch_name(str(model))


def as_description(
    model: str | Path | TorchModel | nn.Module, example_inputs: object, dynamic_shapes: Any
) -> str | Path | TorchModel:
    """A module and its inputs as one description; anything else as it is."""
    if isinstance(model, (str, Path, TorchModel)):
        if example_inputs is not None or dynamic_shapes is not None:
            raise UsageError(
                f"example inputs and dynamic shapes are for a module, and {model} is none",
                next="leave them out; what MODULE:FACTORY names returns its own",
            )
        return model
    return describe(model, example_inputs, {"dynamic_shapes": dynamic_shapes}, type(model).__name__)


def read_description(model: str | Path | TorchModel) -> TorchModel:
    """The description that a name stands for: of a factory, or of a saved program."""
    if isinstance(model, TorchModel):
        return checked(model)
    text, path = str(model), Path(model)
    if path.suffix.lower() in PICKLES:
        from hexport.torch.program_file import refuse_pickle

        refuse_pickle(path)
    if path.suffix.lower() == PROGRAM:
        from hexport.torch.program_file import from_program_file

        return from_program_file(path)
    assert split_factory(text) is not None
    from hexport.torch.factories import from_factory

    return from_factory(text)


def open_torch(model: str | Path | TorchModel, say: Callable[[str], None]) -> Opened:
    """Export it, compare it with PyTorch, and keep the file in hexport's store."""
    found = read_description(model)
    from hexport.torch.calibrating import calibration_of
    from hexport.torch.exporting import example_arrays, export

    exported = export(found, say)
    calib = calibration_of(found, exported.signature)
    arrays = example_arrays(found, exported)
    return Opened(exported.path, exported.notes, calib, found.metric, found.max_drop, arrays)
