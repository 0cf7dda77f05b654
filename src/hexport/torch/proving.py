"""Whether an exported graph answers as the module does: ONNX Runtime against PyTorch, at two sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.backend.running import run_on_cpu
from hexport.errors import HexportError
from hexport.observe.comparing import Comparison, compare
from hexport.torch.eager import Output, run_eager
from hexport.torch.failures import EagerFailed, ExportDiffers
from hexport.torch.resizing import other_sizes, resized

if TYPE_CHECKING:
    from torch import nn

    from hexport.observe.comparing import Outputs
    from hexport.torch.description import TorchModel
    from hexport.torch.eager import Arrays
    from hexport.torch.signature import Signature

ENOUGH_DB = 60.0
"""fp32 rounding in another order gives 100 dB and more."""


@dataclass(frozen=True)
class Trial:
    """Inputs, and what the module gives for them."""

    sizes: str
    """How they differ from the example, in words; empty for the example itself."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Arrays
    expected: Arrays

    @property
    def at(self) -> str:
        return f" at {self.sizes}" if self.sizes else ""


def make_trials(
    module: nn.Module, model: TorchModel, signature: Signature, names: Sequence[str], first: Sequence[Output]
) -> tuple[list[Trial], list[str]]:
    """The example, and one of another size that the module takes; and what to say if there is none."""
    trials = [_trial("", tuple(model.args), dict(model.kwargs), signature, names, first)]
    if not signature.sizes:
        return trials, []
    reason = "there is no other size within their ranges"
    for sizes in other_sizes(signature):
        args, kwargs = resized(model, signature, sizes)
        try:
            outputs = run_eager(module, args, kwargs, str(model))
        except EagerFailed as error:
            reason = error.why.splitlines()[0]
            continue
        said = ", ".join(f"{signature.symbols[s]}={n}" for s, n in sizes.items())
        return [*trials, _trial(said, args, kwargs, signature, names, outputs)], []
    return trials, [f"the dynamic dims were tried at the example's size only: {reason}"]


def prove(path: Path, trials: Sequence[Trial], module: nn.Module, said: str) -> float:
    """The worst of all, in dB; or an error that tells where the graph and the module part."""
    worst = math.inf
    for trial, got in zip(trials, _answers(path, trials, said), strict=True):
        found = compare([trial.expected], [got])
        if found.sqnr_db < ENOUGH_DB:
            raise _differs(found, trial, module, said)
        worst = min(worst, found.sqnr_db)
    return worst


def _answers(path: Path, trials: Sequence[Trial], said: str) -> list[Outputs]:
    """What ONNX Runtime gives; all in one process, unless one of them fails."""
    try:
        return list(run_on_cpu(path, [trial.inputs for trial in trials]).outputs)
    except HexportError:
        return [_answer(path, trial, said) for trial in trials]


def _answer(path: Path, trial: Trial, said: str) -> Outputs:
    try:
        (got,) = run_on_cpu(path, [trial.inputs]).outputs
    except HexportError as error:
        raise ExportDiffers(
            f"{said}: the exported graph does not run{trial.at}",
            why="\n".join([error.what, *error.why.splitlines()[:1]]),
            next=_advice(trial),
        ) from error
    return got


def _trial(
    sizes: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature: Signature,
    names: Sequence[str],
    outputs: Sequence[Output],
) -> Trial:
    return Trial(
        sizes,
        args,
        kwargs,
        input_arrays(signature, args, kwargs),
        {name: output.array for name, output in zip(names, outputs, strict=True)},
    )


def input_arrays(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arrays:
    """Inputs as the graph takes them: arrays by name."""
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((args, kwargs))
    return {one.name: leaves[one.leaf].detach().numpy() for one in signature.inputs}


def _differs(found: Comparison, trial: Trial, module: nn.Module, said: str) -> ExportDiffers:
    worst = found.worst
    assert worst is not None
    why = worst.note or f"{worst.sqnr_db:.1f} dB, at least {ENOUGH_DB:g} dB were expected"
    if _is_random(trial, module, said):
        return ExportDiffers(
            f"{said} cannot be verified",
            why="it gives something else each time: it draws random numbers, or remembers earlier calls",
            next="take in as an input of forward what differs from call to call",
        )
    return ExportDiffers(
        f"{said}: output {worst.name!r} of the exported graph is not the module's{trial.at}",
        why=why,
        next=_advice(trial),
    )


def _is_random(trial: Trial, module: nn.Module, said: str) -> bool:
    again = run_eager(module, trial.args, trial.kwargs, said)
    twice = dict(zip(trial.expected, (output.array for output in again), strict=True))
    return compare([trial.expected], [twice]).sqnr_db < ENOUGH_DB


def _advice(trial: Trial) -> str:
    if trial.sizes:
        return (
            "the graph is right at the example's own size: leave the dim that it depends on out of "
            "dynamic_shapes, and export one model for each size"
        )
    return "this is a fault of torch's exporter: write that part of the model in another way, or report it"
