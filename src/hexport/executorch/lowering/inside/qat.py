"""Training a prepared program: by the user's own function, or by a short loop of hexport's.

Ranges of activations are measured first and then stand still; what is trained are the weights. BatchNorm
keeps the statistics that it was exported with: samples come one at a time, and have none of their own.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hexport.executorch.lowering.inside.ranges import ends_by_itself
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.training import Training
from hexport.toolchain.serving import JobError

Batch = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of the program, by position and by name."""


class Data:
    """The samples, read from their files whenever they are asked for."""

    def __init__(self, numbers: Sequence[int], read: Callable[[Sequence[int]], Iterator[Batch]]) -> None:
        self.numbers = numbers
        self._read = read

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Any]:
        """As a user's function gets them: a tuple, or a dict where the program takes its inputs by name."""
        for args, kwargs in self._read(self.numbers):
            yield args if not kwargs else kwargs if not args else (args, kwargs)

    def batch(self, step: int) -> tuple[int, Batch]:
        """The sample of a step, with its number."""
        number = self.numbers[step % len(self.numbers)]
        return number, next(iter(self._read([number])))


def measure_ranges(prepared: Any, data: Data, margin: float) -> None:
    """Settle the ranges of activations on all samples."""
    torch = stack().torch
    watched: dict[Any, list[float]] = {}
    hooks = []
    ending = set()
    for one, bounded in _fake_quantizers(prepared):
        if bounded:
            ending.add(one)
        ends = watched[one] = [math.inf, -math.inf]
        hooks.append(one.register_forward_pre_hook(lambda _, inputs, ends=ends: _widen(ends, inputs[0])))
    with torch.no_grad():
        for step in range(len(data)):
            _, (args, kwargs) = data.batch(step)
            prepared(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    for one, (low, high) in watched.items():
        wider = 1.0 if one in ending else margin
        _settle(one, low * wider, high * wider)


def train(
    prepared: Any, reference: Any, data: Data, training: Training, import_from: Sequence[str]
) -> list[str]:
    """Train in place; gives what there is to say about it."""
    torch = stack().torch
    for parameter in prepared.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    if training.function:
        _call(training.function, import_from, [prepared, data, reference])
        said = f"trained by {training.function}"
    else:
        torch.manual_seed(training.seed)
        first, last = _loop(prepared, reference, data, training)
        said = f"trained for {training.steps} steps: the loss went from {first:.3g} to {last:.3g}"
    stack().pt2e.move_exported_model_to_eval(prepared)
    return [said]


def _loop(prepared: Any, reference: Any, data: Data, training: Training) -> tuple[float, float]:
    """The mean loss of the first round over the samples, and of the last."""
    torch = stack().torch
    targets = _targets(training.targets) if training.targets else None
    optimizer = torch.optim.Adam([p for p in prepared.parameters() if p.requires_grad], lr=training.lr)
    losses: list[float] = []
    for step in range(training.steps):
        number, (args, kwargs) = data.batch(step)
        if targets is None:
            with torch.no_grad():
                wanted = _leaves(reference(*args, **kwargs))
        else:
            wanted = [array[number] for array in targets]
        loss = _loss(_leaves(prepared(*args, **kwargs)), wanted)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise JobError(
                "TrainingFailed", f"the loss is {losses[-1]} at step {step}: a smaller lr may help"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    once = min(len(data), len(losses))
    return sum(losses[:once]) / once, sum(losses[-once:]) / once


def _loss(given: list[Any], wanted: list[Any]) -> Any:
    torch = stack().torch
    if len(given) != len(wanted):
        raise JobError(
            "TrainingFailed", f"the program has {len(given)} outputs, and there are {len(wanted)} targets"
        )
    total = torch.zeros(())
    for have, want in zip(given, wanted, strict=True):
        if not have.is_floating_point():
            continue
        if not want.is_floating_point():
            total = total + torch.nn.functional.cross_entropy(have, want.reshape(-1).long())
        else:
            # Relative to the signal, so that outputs of any size count the same.
            total = total + ((have - want.reshape(have.shape)) ** 2).mean() / (want**2).mean().clamp_min(
                1e-12
            )
    return total


def _targets(path: str) -> list[Any]:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return [stack().torch.from_numpy(arrays[name]) for name in arrays.files]


def _fake_quantizers(prepared: Any) -> Iterator[tuple[Any, bool]]:
    """Those of activations whose range is measured, each once, and whether it ends by itself."""
    seen: set[int] = set()
    for node in prepared.graph.nodes:
        if node.op != "call_module" or node.args[0].op == "get_attr":
            continue
        one = prepared.get_submodule(node.target)
        inner = getattr(one, "activation_post_process", None)
        lowest = getattr(inner, "min_val", None)
        if id(one) not in seen and lowest is not None and lowest.numel() <= 1:
            seen.add(id(one))
            yield one, ends_by_itself(node)


def _widen(ends: list[float], tensor: Any) -> None:
    ends[0] = min(ends[0], float(tensor.detach().min()))
    ends[1] = max(ends[1], float(tensor.detach().max()))


def _settle(one: Any, low: float, high: float) -> None:
    torch, inner = stack().torch, one.activation_post_process
    inner.min_val, inner.max_val = torch.tensor(low), torch.tensor(high)
    scale, zero = inner.calculate_qparams()
    one.scale, one.zero_point = scale.reshape(1), zero.reshape(1).to(one.zero_point.dtype)
    one.disable_observer()


def _call(named: str, import_from: Sequence[str], arguments: list[Any]) -> None:
    function = _function(named, import_from)
    try:
        count = len(inspect.signature(function).parameters)
        function(*arguments[: max(1, min(count, len(arguments)))])
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        raise JobError("TrainingFailed", f"{named}: {said}") from error


def _function(named: str, import_from: Sequence[str]) -> Callable[..., Any]:
    place, _, name = named.rpartition(":")
    sys.path[:0] = [folder for folder in import_from if folder not in sys.path]
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        function = getattr(module, name)
    except Exception as error:
        raise JobError("TrainingFailed", f"{named}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise JobError("TrainingFailed", f"{named} is a {type(function).__name__}, and no function")
    return function  # type: ignore[no-any-return]


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _leaves(results: Any) -> list[Any]:
    torch = stack().torch
    return [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
