"""Whether torch is there. Everything in this room that needs it calls here first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from hexport.errors import MissingDependency

if TYPE_CHECKING:
    from torch import nn


def need_torch(for_what: str) -> None:
    """Raise what says how to install torch, unless it can be imported."""
    try:
        import onnxscript  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"{for_what} needs {error.name}, which is not installed",
            why="a PyTorch model is run and exported with PyTorch itself",
            next="pip install 'hexport[torch]'",
        ) from error


def is_module(thing: object) -> TypeGuard[nn.Module]:
    """Whether it is a module of torch; whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)
