"""Weights moved onto the grid that the quantiser will put them on, so that a layer's results change least.

ExecuTorch's quantiser rounds every weight to the nearest step. Here the float program and the one that is
being rounded are walked side by side, an operator at a time, on all samples. At a layer it is known what it
gets in both: its weights are first moved so that they give the right results on what the rounded program
feeds it, then rounded one input after the other, those to come making up for it (GPTQ, as for ONNX models),
and its bias takes back what is left on the average. The weights stay floats: they lie on whole steps, and the
largest of each channel stays as it is, so that the quantiser finds the same steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from hexport.executorch.lowering.inside.norms import join_norms
from hexport.executorch.lowering.inside.operators import BIAS, WEIGHT, attribute, base_name
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.inside.walking import Walk
from hexport.quantization.carrying import carried

_HIGHEST = {"8w": 127, "4w": 7}
"""By the last part of a scheme's name; 16 bits need no such care."""
_LONGEST = 4096
"""Inputs of a row; beyond that the moments take more memory than they are worth."""
_KERNELS = {"conv1d": 1, "conv2d": 2}
_FAINT, _LEAST = 0.1, 1e-12
"""Of the mean over all groups: a channel that was hardly active tells nothing, and other inputs wake it."""


def can_round(scheme: str) -> bool:
    """Whether the weights of a scheme have a scale a channel, and few enough steps to matter."""
    return scheme.endswith(tuple(_HIGHEST))


def with_rounded_weights(module: Any, samples: Sequence[Any], scheme: str, left: Iterable[str]) -> Any:
    """A copy with such weights; ``left`` are operators, by name, that have another scheme."""
    made = copy.deepcopy(module)
    join_norms(made)
    highest = next(steps for bits, steps in _HIGHEST.items() if scheme.endswith(bits))
    others = set(left)
    layers = {node.name for node in made.graph.nodes if node.name not in others and _is_layer(made, node)}
    whole, rounded = Walk(made, samples), Walk(made, samples)
    with stack().torch.no_grad():
        for node in made.graph.nodes:
            if node.name in layers:
                moments = _Moments()
                shape = attribute(made, node.args[WEIGHT]).shape
                for want, have in zip(whole.inputs(node), rounded.inputs(node), strict=True):
                    moments.add(_vectors(want, node, shape), _vectors(have, node, shape))
                _round(made, node, moments, highest)
                rounded.take(made, node)
            whole.step(node)
            rounded.step(node)
    return made


def _own_bias(node: Any) -> Any | None:
    """The node that gets a layer's bias, if no other layer has it."""
    bias: Any = node.args[BIAS] if len(node.args) > BIAS else None
    return bias if getattr(bias, "op", "") == "get_attr" and len(bias.users) == 1 else None


def _is_layer(module: Any, node: Any) -> bool:
    kind = base_name(node) if node.op == "call_function" else ""
    if kind not in ("linear", *_KERNELS) or getattr(node.args[WEIGHT], "op", "") != "get_attr":
        return False
    weight = attribute(module, node.args[WEIGHT])
    plain = all(not isinstance(argument, str) for argument in node.args)  # padding="same"
    shared = len(node.args[WEIGHT].users) > 1
    return plain and not shared and weight[0].numel() <= _LONGEST


class _Moments:
    """Of the vectors that the rows of a weight are multiplied with, in groups: in the float program, and in
    the rounded one."""

    def __init__(self) -> None:
        self.squares: Any = 0.0
        self.products: Any = 0.0
        self.wanted: Any = 0.0
        self.found: Any = 0.0
        self.count = 0

    def add(self, wanted: Any, found: Any) -> None:
        """Each: group, length, how many."""
        wanted, found = wanted.double(), found.double()
        self.squares = self.squares + found @ found.transpose(1, 2)
        self.products = self.products + wanted @ found.transpose(1, 2)
        self.wanted = self.wanted + wanted.sum(2)
        self.found = self.found + found.sum(2)
        self.count += found.shape[2]

    def means(self, *, centred: bool) -> tuple[Any, Any, Any, Any]:
        """Of the vectors of both programs, of the rounded one's squares, and of their products; ``centred``:
        where a bias takes care of the means."""
        count = max(self.count, 1)
        wanted, found = self.wanted / count, self.found / count
        squares, products = self.squares / count, self.products / count
        if centred:
            squares = squares - found[:, :, None] * found[:, None, :]
            products = products - wanted[:, :, None] * found[:, None, :]
        return wanted, found, squares, products


def _vectors(x: Any, node: Any, shape: Any) -> Any:
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
    groups = arguments[6] if len(arguments) > 6 else 1
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


def _round(module: Any, node: Any, moments: _Moments, highest: int) -> None:
    torch = stack().torch
    parameter = attribute(module, node.args[WEIGHT])
    weight = parameter.detach().double()
    groups = moments.squares.shape[0]
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    bias = _own_bias(node)
    wanted, found, squares, products = moments.means(centred=bias is not None)
    strength = torch.einsum("gii->gi", squares).mean(1)
    strength = strength.clamp(min=max(_FAINT * float(strength.mean()), _LEAST))
    hold = strength[:, None, None] * torch.eye(squares.shape[1], dtype=squares.dtype)
    moved = torch.linalg.solve(squares + hold, rows @ (products + hold), left=False)
    largest = moved.abs().amax(2)
    scales = torch.where(largest > 0, largest / highest, torch.ones_like(largest))
    whole = carried(moved.numpy(), scales.numpy(), squares.numpy(), highest, keep_largest=True)
    changed = torch.from_numpy(whole) * scales[:, :, None]
    parameter.copy_(changed.reshape(weight.shape).to(parameter.dtype))
    if bias is not None:
        shift = torch.einsum("gol,gl->go", changed, found) - torch.einsum("gol,gl->go", rows, wanted)
        own = attribute(module, bias)
        own.copy_((own.double() - shift.reshape(-1)).to(own.dtype))
