"""A module that takes its tensors one after the other, and nothing else.

What is a number, a text or None among the inputs is fixed in a graph anyhow; ExecuTorch's file would ask for
it at every call. Parts of the module keep their paths, which reports and overrides go by.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hexport.torch.eager import runnable

if TYPE_CHECKING:
    from hexport.torch.description import TorchModel


def is_flat(model: TorchModel) -> bool:
    """Whether it takes tensors by position only."""
    import torch

    return not model.kwargs and all(isinstance(one, torch.Tensor) for one in model.args)


def flat(model: TorchModel, names: tuple[str, ...]) -> TorchModel:
    """The same with tensors by position, called ``names``; the user's own module stays as it is."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((tuple(model.args), dict(model.kwargs)))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    others = [None if index in places else leaf for index, leaf in enumerate(leaves)]
    own: Any = runnable(model)

    class Flat(type(own)):  # type: ignore[misc]
        def forward(self, *tensors: torch.Tensor) -> Any:
            found = list(others)
            for place, tensor in zip(places, tensors, strict=True):
                found[place] = tensor
            args, kwargs = pytree.tree_unflatten(found, spec)
            return super().forward(*args, **kwargs)

    bound = copy.copy(own)  # the same parameters and parts
    bound.__class__ = Flat
    tensors = tuple(leaves[place] for place in places)
    more: dict[str, Any] = {"input_names": names, "dynamic_shapes": None, "axis_names": ()}
    return replace(model, module=bound, args=tensors, kwargs={}, **more)
