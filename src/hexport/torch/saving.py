"""A description as files, for work in another process: the program, samples, and what PyTorch gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
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
    from torch.export import ExportedProgram

    from hexport.torch.description import TorchModel

_PROGRAM, _SAMPLES, _EXPECTED = "model.pt2", "samples.npz", "expected.npz"
MOST_SAMPLES = 32


@dataclass(frozen=True)
class SavedProgram:
    """A model at fixed sizes."""

    path: Path
    """The ``.pt2``, captured by dynamo where it can be: operators know the modules that they are from."""
    samples: Path
    """An ``.npz`` with an array an input, samples first: the example, then those for calibration."""
    expected: Path
    """An ``.npz`` with an array an output, samples first: what PyTorch itself gives for the samples."""
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_shapes: Mapping[str, tuple[int, ...]]
    count: int
    """How many samples there are; one: the example alone."""
    notes: tuple[str, ...]


def save_program(
    model: TorchModel, folder: Path, *, sizes: Mapping[str, int] | None = None, limit: int = MOST_SAMPLES
) -> SavedProgram:
    """Write the program to ``folder`` with every dim fixed: at ``sizes`` by name, else at the example's."""
    need_torch(str(model))
    module = runnable(model)
    with in_eval_mode(module) as was_training:
        fixed = _at_sizes(model, sizes or {})
        program = _captured(fixed)
        signature = read_signature(fixed, program)
        first = run_eager(module, tuple(fixed.args), dict(fixed.kwargs), str(model))
        names = output_names(model, first)
        samples = _samples(fixed, signature, limit)
        outputs = [[out.array for out in first], *(_run(module, fixed, signature, s) for s in samples[1:])]
    folder.mkdir(parents=True, exist_ok=True)
    inputs = tuple(one.name for one in signature.inputs)
    _write(program, folder / _PROGRAM, inputs, names)
    _stack(folder / _SAMPLES, inputs, [[sample[name] for name in inputs] for sample in samples])
    _stack(folder / _EXPECTED, names, outputs)
    notes = [*(["it was in training mode, and was exported in eval mode"] if was_training else [])]
    shapes = {name: tuple(samples[0][name].shape) for name in inputs}
    saved = (folder / _PROGRAM, folder / _SAMPLES, folder / _EXPECTED)
    return SavedProgram(*saved, inputs, tuple(names), shapes, len(samples), (*notes, *signature.notes))


def _at_sizes(model: TorchModel, sizes: Mapping[str, int]) -> TorchModel:
    """The same with every dim fixed."""
    program = capture(model) if model.dynamic_shapes is not None or model.is_program else None
    if program is None or not (symbols := read_signature(model, program)).sizes:
        if sizes:
            raise UsageError(f"{model} has no dynamic dims", why=f"sizes were given for {', '.join(sizes)}")
        return replace(model, dynamic_shapes=None)
    known = {name: symbol for symbol, name in symbols.symbols.items()}
    if strangers := [name for name in sizes if name not in known]:
        raise UsageError(
            f"{model} has no dim called {strangers[0]!r}", why=f"its dims are: {', '.join(known)}"
        )
    wanted = {**symbols.sizes, **{known[name]: size for name, size in sizes.items()}}
    args, kwargs = resized(model, symbols, wanted)
    module: Any = runnable(model)
    names = tuple(one.name for one in symbols.inputs)
    return replace(
        model, module=module, args=args, kwargs=kwargs, dynamic_shapes=None, input_names=names, axis_names=()
    )


def _captured(model: TorchModel) -> ExportedProgram:
    return capture(model, strict_first=True)


def _samples(model: TorchModel, signature: Signature, limit: int) -> list[dict[str, Any]]:
    """The example, and samples of its shapes: a program of fixed sizes takes no others."""
    from hexport.quantization.data.live import Live

    example = input_arrays(signature, tuple(model.args), dict(model.kwargs))
    found: list[dict[str, Any]] = [dict(example)]
    source = calibration_of(model, signature)
    if source is None:
        return found
    shapes = {name: array.shape for name, array in example.items()}
    if isinstance(source, (str, Path)):
        raise UsageError(
            f"{model}: its calibration is the file {source}", next="give --calib, or an iterable of samples"
        )
    live = Live(source, f"{model}: calibration", _AnyInputs(tuple(shapes)))  # type: ignore[arg-type]
    for number, one in enumerate(islice(live.read(), limit)):
        sample = {name: one.values.get(name) for name in shapes}
        for name, array in sample.items():
            if getattr(array, "shape", None) != shapes[name]:
                raise UsageError(
                    f"{model}: sample {number} has {name} of shape {getattr(array, 'shape', None)}",
                    why=f"the program is saved for {shapes[name]}",
                    next="give samples of one size, or sizes that are theirs",
                )
        found.append(sample)
    return found


@dataclass(frozen=True)
class _AnyInputs:
    """All that a live source asks of what it is read for."""

    free: tuple[str, ...]


def _run(module: Any, model: TorchModel, signature: Signature, sample: Mapping[str, Any]) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((tuple(model.args), dict(model.kwargs)))
    for one in signature.inputs:
        leaves[one.leaf] = torch.from_numpy(sample[one.name].copy())
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return [output.array for output in run_eager(module, args, kwargs, str(model))]


def _write(program: ExportedProgram, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    import torch

    ours = json.dumps({"input_names": list(inputs), "output_names": list(outputs), "axis_names": []})
    try:
        with tracing():
            torch.export.save(program, path, extra_files={OURS: ours})
    except Exception as error:
        raise NotCaptured(
            "the captured program cannot be saved", why=f"{type(error).__name__}: {error}"
        ) from error


def _stack(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    import numpy as np

    columns = zip(*rows, strict=True)
    arrays: dict[str, Any] = {name: np.stack(column) for name, column in zip(names, columns, strict=True)}
    np.savez(path, **arrays)
