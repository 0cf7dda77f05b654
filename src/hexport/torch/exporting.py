"""From a description to an ONNX file that answers as the module does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
from hexport.torch.capturing import capture
from hexport.torch.eager import Output, in_eval_mode, run_eager, runnable
from hexport.torch.failures import ExportDiffers
from hexport.torch.installed import need_torch
from hexport.torch.keeping import kept
from hexport.torch.proving import Trial, input_arrays, make_trials, prove
from hexport.torch.recurrent import whole_layers
from hexport.torch.signature import Signature, read_signature

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from hexport.torch.description import TorchModel

_MODEL, _NOTES = "model.onnx", "notes.json"


@dataclass(frozen=True)
class Exported:
    """The ONNX file of a module, and what is to be said of it."""

    path: Path
    sqnr_db: float
    """Of the worst output at the worst size, against PyTorch; infinite: equal."""
    notes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    signature: Signature


def export(model: TorchModel, say: Callable[[str], None] = lambda _: None) -> Exported:
    """Capture, write, and compare with the module itself: what differs is an error, and no file."""
    need_torch(str(model))
    module = runnable(model)
    with in_eval_mode(module) as was_training:
        say(f"{model}: exporting from PyTorch")
        first = run_eager(module, tuple(model.args), dict(model.kwargs), str(model))
        names = output_names(model, first)
        program, signature = _captured(model)
        trials, untried = make_trials(module, model, signature, names, first)
        try:
            path, sqnr, said = _proved(program, signature, names, trials, module, str(model))
        except ExportDiffers:
            if model.is_program or len(trials) == 1:
                raise
            # A table that is as long as the example: torch takes it whole, and the dim for a number.
            other = replace(model, args=trials[1].args, kwargs=trials[1].kwargs)
            program, signature = _captured(other)
            path, sqnr, said = _proved(program, signature, names, trials, module, str(model))
            said = [f"it was captured at {trials[1].sizes}: the example's own size is a special one", *said]
    notes = [
        *(["it was in training mode, and was exported in eval mode"] if was_training else []),
        *signature.notes,
        *said,
        *untried,
        _figure(sqnr, trials),
    ]
    inputs = tuple(one.name for one in signature.inputs)
    return Exported(path, sqnr, tuple(notes), inputs, tuple(names), signature)


def _captured(model: TorchModel) -> tuple[ExportedProgram, Signature]:
    with whole_layers():
        program = capture(model)
    return program, read_signature(model, program)


def _proved(
    program: ExportedProgram,
    signature: Signature,
    names: Sequence[str],
    trials: Sequence[Trial],
    module: nn.Module,
    said: str,
) -> tuple[Path, float, list[str]]:
    """The tidied graph if it answers as the module does, else the graph as torch wrote it."""
    folder = _written(program, signature, names, said, tidy=True)
    try:
        return folder / _MODEL, prove(folder / _MODEL, trials, module, said), _notes(folder)
    except ExportDiffers as error:
        plain = _written(program, signature, names, said, tidy=False)
        try:
            sqnr = prove(plain / _MODEL, trials, module, said)
        except ExportDiffers:
            raise error from None
        left = f"tidying the graph up changes what it computes, so it was left as torch wrote it: {error.why}"
        return plain / _MODEL, sqnr, [*_notes(plain), left]


def _written(
    program: ExportedProgram,
    signature: Signature,
    names: Sequence[str],
    said: str,
    *,
    tidy: bool,
) -> Path:
    def make(folder: Path) -> None:
        from hexport.preparation.saving import save
        from hexport.torch.onnx_writing import tidied, to_onnx

        with whole_layers():
            graph, notes = to_onnx(program, signature, names, said)
        save(tidied(graph) if tidy else graph, folder / _MODEL)
        (folder / _NOTES).write_text(json.dumps(notes), "utf-8")

    return kept(
        program,
        make,
        inputs=[one.name for one in signature.inputs],
        outputs=list(names),
        dims=dict(signature.symbols),
        # The sizes that it was captured at: torch's decompositions look at them, and no graph shows them.
        sizes=dict(signature.sizes),
        tidy=tidy,
    )


def _notes(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / _NOTES).read_text("utf-8"))
    return found


def output_names(model: TorchModel, outputs: Sequence[Output]) -> list[str]:
    """What the user calls them, or their keys."""
    own = [output.key for output in outputs]
    if not model.output_names:
        return _told_apart(own)
    if len(model.output_names) != len(own) or len(set(model.output_names)) < len(own):
        raise UsageError(
            f"{model}: output_names has {', '.join(model.output_names)}",
            why=f"the model gives {len(own)} tensors: {', '.join(own)}",
            next="give each a name of its own, in this order",
        )
    return list(model.output_names)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Keys that differ only in signs that a name cannot have."""
    return [f"{name}_{i}" if names.index(name) != i else name for i, name in enumerate(names)]


def _figure(sqnr: float, trials: Sequence[Trial]) -> str:
    import torch

    sizes = ["the example inputs", *(trial.sizes for trial in trials if trial.sizes)]
    how = f"{sqnr:.1f} dB" if isfinite(sqnr) else "equal"
    return (
        f"exported by torch {torch.__version__} and compared with PyTorch on {' and at '.join(sizes)}: {how}"
    )


def example_arrays(model: TorchModel, exported: Exported) -> dict[str, Any]:
    """The example inputs as the graph takes them."""
    return dict(input_arrays(exported.signature, tuple(model.args), dict(model.kwargs)))
