"""The module itself, run by PyTorch: what every other form of it is held against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexport.torch.failures import EagerFailed, NotCaptured
from hexport.torch.quiet import users_turn
from hexport.torch.user_code import place_of_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from hexport.torch.description import TorchModel

    Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Output:
    """One tensor of what a module gives."""

    key: str
    """Where it is in the result, as a name."""
    array: NDArray[np.generic]


@contextlib.contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[bool]:
    """The module as it is deployed, and as it was before afterwards; whether any part of it was training."""
    training = [part for part in module.modules() if part.training]
    try:
        module.eval()
    except NotImplementedError:  # a captured program is what it is
        training = []
    try:
        yield bool(training)
    finally:
        for part in training:
            part.training = True


def runnable(model: TorchModel) -> nn.Module:
    """What can be called."""
    from torch.export import ExportedProgram

    found: Any = model.module
    return found.module(check_guards=False) if isinstance(found, ExportedProgram) else found


def run_eager(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> list[Output]:
    """Every tensor of the result; None for an output that is None."""
    import torch
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_map(_copied, (args, kwargs))  # a module may write into its inputs
    try:
        with torch.no_grad(), users_turn():
            result = module(*args, **kwargs)
    except Exception as error:
        raise EagerFailed(
            f"{said} fails on its own inputs ({_shapes(args, kwargs)})",
            why=f"{type(error).__name__}: {error}\n{place_of_error(error, module)}".rstrip(),
            next="mend forward, or give inputs that it takes",
        ) from error
    leaves, _ = pytree.tree_flatten_with_path(result)
    for path, leaf in leaves:
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise NotCaptured(
                f"{said} gives a {type(leaf).__name__} at result{pytree.keystr(path)}",
                why="the outputs of a graph are tensors",
                next="return tensors only, in tuples, lists and dicts",
            )
    found = [Output(_key(path), _array(leaf)) for path, leaf in leaves if leaf is not None]
    if not found:
        raise NotCaptured(f"{said} gives no tensor", next="return what it computes")
    return found


def _copied(leaf: Any) -> Any:
    import torch

    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _array(tensor: Any) -> NDArray[np.generic]:
    """Types that numpy lacks are compared in the next larger one."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    found: NDArray[np.generic] = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return found


def _key(path: tuple[Any, ...]) -> str:
    """Keys and numbers of the containers around it: ``{"p": (a, b)}`` has ``p_0`` and ``p_1``."""
    parts = []
    for step in path:
        part = getattr(step, "key", getattr(step, "name", getattr(step, "idx", "")))
        parts.append("".join(c if c.isalnum() else "_" for c in str(part)))
    key = "_".join(parts)
    return key if key and not key[0].isdigit() else f"output_{key}".rstrip("_")


def _shapes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((args, kwargs))
    return ", ".join(str(list(leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor))
