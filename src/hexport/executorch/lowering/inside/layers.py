"""The layers of a program whose weights are rounded: which they are, and the vectors that they multiply."""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.operators import BIAS, WEIGHT, attribute, base_name
from hexport.executorch.lowering.inside.stack import stack

_LONGEST = 4096
"""Inputs of a row; beyond that the moments take more memory than they are worth."""
GROUPS = 6
"""The place of this argument of a convolution."""
_KERNELS = {"conv1d": 1, "conv2d": 2}


def own_bias(node: Any) -> Any | None:
    """The node that gets a layer's bias, if no other layer has it."""
    bias: Any = node.args[BIAS] if len(node.args) > BIAS else None
    return bias if getattr(bias, "op", "") == "get_attr" and len(bias.users) == 1 else None


def is_layer(module: Any, node: Any) -> bool:
    """Whether it has weights of its own, and is of a kind whose vectors can be told."""
    kind = base_name(node) if node.op == "call_function" else ""
    if kind not in ("linear", *_KERNELS) or getattr(node.args[WEIGHT], "op", "") != "get_attr":
        return False
    weight = attribute(module, node.args[WEIGHT])
    plain = all(not isinstance(argument, str) for argument in node.args)  # padding="same"
    shared = len(node.args[WEIGHT].users) > 1
    return plain and not shared and weight[0].numel() <= _LONGEST


def vectors(x: Any, node: Any, shape: Any) -> Any:
    """What the rows of a weight of ``shape`` are multiplied with: group, length, how many."""
    kind, arguments = base_name(node), node.args
    if kind == "linear":
        return x.reshape(-1, x.shape[-1]).T[None]
    functional = stack().torch.nn.functional
    dims = _KERNELS[kind]
    # Input, weight, bias, stride, padding, dilation, groups; a number stands for all dims.
    stride, padding, dilation = (
        _pair(arguments[place], dims) if len(arguments) > place else default
        for place, default in ((3, [1, 1]), (4, [0, 0]), (5, [1, 1]))
    )
    groups = arguments[GROUPS] if len(arguments) > GROUPS else 1
    kernel = [1, shape[2]] if dims == 1 else list(shape[2:])
    if dims == 1:
        x = x.unsqueeze(-2)
        padding = [0, padding[1]]
    x = x if x.dim() == 4 else x[None]
    patches = functional.unfold(x, kernel, dilation, padding, stride)
    patches = patches.reshape(x.shape[0], groups, -1, patches.shape[-1])
    return patches.permute(1, 2, 0, 3).flatten(2)


def _pair(value: Any, dims: int) -> list[int]:
    found = [value] * dims if isinstance(value, int) else list(value) * (dims if len(value) == 1 else 1)
    return [found[0], found[0]] if dims == 1 else found
