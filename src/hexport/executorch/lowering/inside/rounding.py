"""Weights moved onto the grid that the quantiser will put them on, so that a layer's results change least.

ExecuTorch's quantiser rounds every weight to the nearest step. Here each input's weights are rounded after
the other and those to come make up for it (GPTQ, as for ONNX models), and biases take back what is left on
the average, also of what the layers before have left. The weights stay floats: they lie on whole steps, and
the largest of each channel stays as it is, so that the quantiser finds the same steps.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from hexport.executorch.lowering.inside.operators import BIAS, attribute, base_name
from hexport.executorch.lowering.inside.stack import stack
from hexport.quantization.carrying import carried

_HIGHEST = {"8w": 127, "4w": 7}
"""By the last part of a scheme's name; 16 bits need no such care."""
_WEIGHT = 1
_LONGEST = 4096
"""Inputs of a row; beyond that the moments take more memory than they are worth."""
_KERNELS = {"conv1d": 1, "conv2d": 2}
_MOST_PASSES = 128
"""Layers whose means are matched; each takes a pass over the samples."""


def can_round(scheme: str) -> bool:
    """Whether the weights of a scheme have a scale a channel, and few enough steps to matter."""
    return scheme.endswith(tuple(_HIGHEST))


def with_rounded_weights(module: Any, samples: Sequence[Any], scheme: str, left: Iterable[str]) -> Any:
    """A copy with such weights; ``left`` are operators, by name, that have another scheme."""
    made = copy.deepcopy(module)
    _join_norms(made)
    highest = next(steps for bits, steps in _HIGHEST.items() if scheme.endswith(bits))
    layers = [node for node in made.graph.nodes if node.name not in set(left) and _is_layer(made, node)]
    heard = _listen(made, layers, samples)
    whole = copy.deepcopy(made)
    for node in layers:
        if node.name in heard:
            _round(made, node, heard[node.name], highest)
    biased = [node for node in layers if _own_bias(node) is not None]
    if len(biased) <= _MOST_PASSES:
        _match_means(whole, made, biased, samples)
    return made


def _match_means(whole: Any, made: Any, layers: list[Any], samples: Sequence[Any]) -> None:
    """Layer after layer, the bias takes back what all that was rounded before shifts its results by."""
    torch = stack().torch
    names = [node.name for node in layers]
    wanted = _means(whole, names, samples)
    for node in layers:
        (found,) = _means(made, [node.name], samples).values()
        bias: Any = _own_bias(node)
        own = attribute(made, bias)
        with torch.no_grad():
            own.add_((wanted[node.name] - found).to(own.dtype))


def _means(module: Any, names: list[str], samples: Sequence[Any]) -> dict[str, Any]:
    """The mean result of every channel of these layers."""
    torch = stack().torch
    mouths = copy.deepcopy(module)
    sums: dict[str, list[Any]] = {name: [] for name in names}

    class Mouth(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, name: str, axis: int) -> None:
            super().__init__()
            self._found, self._axis = sums[name], axis

        def forward(self, y: Any) -> Any:
            self._found.append(y.double().movedim(self._axis, 0).flatten(1).mean(1))
            return y

    for node in [node for node in mouths.graph.nodes if node.name in sums]:
        name = f"mouth_of_{node.name}"
        axis = -1 if base_name(node) == "linear" else -1 - _KERNELS[base_name(node)]
        mouths.add_submodule(name, Mouth(node.name, axis))
        with mouths.graph.inserting_after(node):
            told = mouths.graph.call_module(name, (node,))
        node.replace_all_uses_with(told, delete_user_cb=lambda user, told=told: user is not told)
    mouths.recompile()
    with torch.no_grad():
        for args, kwargs in samples:
            mouths(*args, **kwargs)
    return {name: torch.stack(found).mean(0) for name, found in sums.items()}


def _own_bias(node: Any) -> Any | None:
    """The node that gets a layer's bias, if no other layer has it."""
    bias: Any = node.args[BIAS] if len(node.args) > BIAS else None
    return bias if getattr(bias, "op", "") == "get_attr" and len(bias.users) == 1 else None


def _join_norms(module: Any) -> None:
    """BatchNorm as a part of the convolution before it, as the quantiser would do next: it has the bias."""
    importlib.import_module("torchao.quantization.pt2e.utils")._fuse_conv_bn_(module)


def _is_layer(module: Any, node: Any) -> bool:
    kind = base_name(node) if node.op == "call_function" else ""
    if kind not in ("linear", *_KERNELS) or getattr(node.args[_WEIGHT], "op", "") != "get_attr":
        return False
    weight = attribute(module, node.args[_WEIGHT])
    plain = all(not isinstance(argument, str) for argument in node.args)  # padding="same"
    shared = len(node.args[_WEIGHT].users) > 1
    return plain and not shared and weight[0].numel() <= _LONGEST


class _Moments:
    """Of the vectors that the rows of a weight are multiplied with, in groups."""

    def __init__(self) -> None:
        self.squares: Any = 0.0
        self.sum: Any = 0.0
        self.count = 0

    def add(self, vectors: Any) -> None:
        """``vectors``: group, length, how many."""
        vectors = vectors.double()
        self.squares = self.squares + vectors @ vectors.transpose(1, 2)
        self.sum = self.sum + vectors.sum(2)
        self.count += vectors.shape[2]


def _listen(module: Any, layers: list[Any], samples: Sequence[Any]) -> dict[str, _Moments]:
    """What goes into each layer, on the samples."""
    torch = stack().torch
    ears = copy.deepcopy(module)
    wanted = {node.name for node in layers}
    heard: dict[str, _Moments] = {}

    class Ear(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, node: Any) -> None:
            super().__init__()
            self._arguments, self._kind = node.args, base_name(node)
            self._shape = attribute(ears, node.args[_WEIGHT]).shape
            self._moments = heard.setdefault(node.name, _Moments())

        def forward(self, x: Any) -> Any:
            self._moments.add(_vectors(x, self._kind, self._arguments, self._shape))
            return x

    for node in [node for node in ears.graph.nodes if node.name in wanted]:
        name = f"ear_of_{node.name}"
        ears.add_submodule(name, Ear(node))
        with ears.graph.inserting_before(node):
            node.update_arg(0, ears.graph.call_module(name, (node.args[0],)))
    ears.recompile()
    with torch.no_grad():
        for args, kwargs in samples:
            ears(*args, **kwargs)
    return heard


def _vectors(x: Any, kind: str, arguments: Any, shape: Any) -> Any:
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
    parameter = attribute(module, node.args[_WEIGHT])
    weight = parameter.detach().double()
    groups = moments.squares.shape[0]
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    largest = rows.abs().amax(2)
    scales = torch.where(largest > 0, largest / highest, torch.ones_like(largest))
    squares = moments.squares / max(moments.count, 1)
    whole = carried(rows.numpy(), scales.numpy(), squares.numpy(), highest, keep_largest=True)
    changed = torch.from_numpy(whole) * scales[:, :, None]
    with torch.no_grad():
        parameter.copy_(changed.reshape(weight.shape).to(parameter.dtype))
        bias = _own_bias(node)
        if bias is not None:
            mean = moments.sum / max(moments.count, 1)
            shift = torch.einsum("gol,gl->go", changed - rows, mean).reshape(-1)
            own = attribute(module, bias)
            own.copy_((own.double() - shift).to(own.dtype))
