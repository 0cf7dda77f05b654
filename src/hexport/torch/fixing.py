"""A model at fixed sizes, as ExecuTorch takes it: its program as a file, and what PyTorch gives for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.errors import UsageError
from hexport.torch.binding import flat, is_flat
from hexport.torch.calibrating import calibration_of
from hexport.torch.capturing import capture, tracing
from hexport.torch.eager import in_eval_mode, run_eager, runnable
from hexport.torch.exporting import output_names
from hexport.torch.failures import NotCaptured
from hexport.torch.installed import need_torch
from hexport.torch.program_file import OURS
from hexport.torch.proving import input_arrays
from hexport.torch.resizing import resized
from hexport.torch.signature import Signature, read_signature

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from hexport.torch.description import TorchModel

    Arrays = Mapping[str, NDArray[np.generic]]

Sizes = Mapping[str, int | tuple[int, ...]]
"""A dim → its size, or an input → its shape."""


@dataclass(frozen=True)
class FixedModel:
    """A model at fixed sizes."""

    example: Arrays
    """The example inputs, at these sizes."""
    output_names: tuple[str, ...]
    calibration: object
    """What ``--calib`` would name; None: the model brings no samples."""
    notes: tuple[str, ...]
    _model: TorchModel
    _program: ExportedProgram

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(self.example)

    def answer(self, sample: Arrays) -> dict[str, NDArray[np.generic]]:
        """What PyTorch itself gives for inputs of these sizes."""
        import torch

        args = tuple(torch.from_numpy(sample[name].copy()) for name in self.input_names)
        module = runnable(self._model)
        with in_eval_mode(module):
            outputs = run_eager(module, args, {}, str(self._model))
        return {name: one.array for name, one in zip(self.output_names, outputs, strict=True)}

    def save(self, path: Path) -> None:
        """The program as a ``.pt2``."""
        import torch

        names = {"input_names": list(self.input_names), "output_names": list(self.output_names)}
        try:
            with tracing():
                ours = {OURS: json.dumps({**names, "axis_names": []})}
                torch.export.save(self._program, path, extra_files=ours)
        except Exception as error:
            raise NotCaptured(
                f"the captured program of {self._model} cannot be saved",
                why=f"{type(error).__name__}: {error}",
                next="torch says which of its parts; take it out of forward",
            ) from error


def fix_sizes(model: TorchModel, sizes: Sizes | None = None) -> FixedModel:
    """The model with every dim fixed: at ``sizes``, else at those of the example.

    It is captured by dynamo where that can be: operators then know the modules that they are from.
    """
    need_torch(str(model))
    module = runnable(model)
    with in_eval_mode(module) as was_training:
        program = capture(model, strict_first=True)
        signature = read_signature(model, program)
        samples = calibration_of(model, signature)
        wanted = _by_symbol(model, signature, sizes or {})
        if signature.sizes or not is_flat(model):
            args, kwargs = resized(model, signature, {**signature.sizes, **wanted})
            names = tuple(one.name for one in signature.inputs)
            notes = signature.notes
            model = flat(replace(model, args=args, kwargs=kwargs), names)
            program = capture(model, strict_first=True)
            signature = replace(read_signature(model, program), notes=notes)
        first = run_eager(runnable(model), tuple(model.args), {}, str(model))
    said = ["it was in training mode, and was exported in eval mode"] if was_training else []
    return FixedModel(
        input_arrays(signature, tuple(model.args), {}),
        tuple(output_names(model, first)),
        samples,
        (*said, *signature.notes),
        model,
        program,
    )


def _by_symbol(model: TorchModel, signature: Signature, sizes: Sizes) -> dict[str, int]:
    """Torch's symbol of a dim → its size."""
    dims = {name: symbol for symbol, name in signature.symbols.items()}
    inputs = {one.name: one for one in signature.inputs}
    found: dict[str, int] = {}
    for name, size in sizes.items():
        shape = (size,) if isinstance(size, int) else size
        if name in dims and len(shape) == 1:
            found[dims[name]] = shape[0]
            continue
        if name not in inputs or len(shape) != len(inputs[name].dims):
            raise UsageError(
                f"{model}: {name} cannot be {'x'.join(map(str, shape))}",
                why=f"its dims are {', '.join(dims) or 'all fixed'}; its inputs are "
                + ", ".join(f"{one.name} of {len(one.dims)} axes" for one in signature.inputs),
                next="give a dim one size, or an input all of its sizes",
            )
        for dim, wanted in zip(inputs[name].dims, shape, strict=True):
            if str(dim) in signature.symbols:
                found[str(dim)] = wanted
            elif dim != wanted and isinstance(dim, int):
                raise UsageError(
                    f"{model}: {name} cannot be {'x'.join(map(str, shape))}",
                    why=f"an axis of {dim} does not vary",
                    next="name the dims that vary in its dynamic_shapes",
                )
    return found
