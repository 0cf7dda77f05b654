"""Layers whose weights 8 bits are too coarse for, on inputs that are not like the samples.

Rounding that makes up for itself learns from the samples. A layer that many vectors were seen of keeps what
it learnt on all inputs; where there were few, results are 12 dB better on inputs like the samples, and on
others they are those of plain rounding. Roundings add up: their sum over all layers tells what other inputs
will get, and the layers that cost least for what they spare are raised until it is enough.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.executorch.lowering.inside.layers import GROUPS, is_layer, own_bias, vectors
from hexport.executorch.lowering.inside.norms import join_norms
from hexport.executorch.lowering.inside.operators import WEIGHT, attribute
from hexport.executorch.lowering.inside.programs import module_path
from hexport.executorch.lowering.inside.rounding import Moments, on_grid, steps_of
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.inside.walking import Walk, tensors_in
from hexport.quantization.damping import doubt

_ABOVE_DB = 5.0
"""Over what is asked for: the sum is measured on samples, other inputs get a decibel less, and the worst of a
dozen of them two or three less than the others; the rest is for the activations' own rounding."""
_MOST_MACS = 1 / 3
"""Of all, that may multiply 16 bits by 16."""
_MEASURED = 2
"""Samples that the results are compared on: it is one run of the program a layer and sample."""
_PATIENCE = 300.0
"""Seconds for that."""
_HIGHEST = 127
_FILLED = 32
"""Inputs of a group: with nine depthwise layers in 16 bits, a hundredth of the weights, a file was half as
large again."""
Noise = NDArray[np.float64]
"""Over signal, at every output."""


@dataclass(frozen=True)
class Layer:
    """What a layer's weights do, and what it would cost to have them exact."""

    name: str
    path: str
    noise: Noise
    weights: float
    """What more it would store, as a share of all the weights there are."""
    macs: float
    """Its share of the multiply-accumulates."""


@dataclass(frozen=True)
class Delicate:
    """The layers to raise; and the decibels that 8 bits would leave before and after."""

    layers: tuple[Layer, ...]
    before_db: float
    after_db: float

    @property
    def weights(self) -> float:
        return sum(layer.weights for layer in self.layers)

    @property
    def macs(self) -> float:
        return sum(layer.macs for layer in self.layers)


class TooSlow(Exception):
    """It would take more time than it is worth."""


def find_delicate(module: Any, samples: Sequence[Any], goal_db: float, left: Iterable[str]) -> Delicate:
    """What to raise for ``goal_db``; ``left`` are operators, by name, that have another scheme."""
    made = copy.deepcopy(module)
    join_norms(made)
    others = set(left)
    nodes = [node for node in made.graph.nodes if node.name not in others and is_layer(made, node)]
    with stack().torch.no_grad():
        layers = _measured(made, nodes, samples)
    return choose(layers, 10 ** (-(goal_db + _ABOVE_DB) / 10))


def choose(layers: Sequence[Layer], goal: float) -> Delicate:
    """Those that spare most of the noise above ``goal`` for their cost, until there is none above it."""
    before = _total(layers)
    rest, chosen, macs = list(layers), [], 0.0
    total = before.copy()
    while np.any(total > goal):
        fitting = [one for one in rest if macs + one.macs <= _MOST_MACS]
        over = np.maximum(total - goal, 0.0)
        best = max(fitting, key=lambda one: _gain(one, over), default=None)
        if best is None or not _gain(best, over) > 0:
            break
        rest.remove(best)
        chosen.append(best)
        macs += best.macs
        total = _total(rest)
    return Delicate(tuple(chosen), _decibels(before), _decibels(total))


def _gain(layer: Layer, over: Noise) -> float:
    cost = layer.weights + layer.macs
    return float(np.sum(np.minimum(layer.noise, over))) / max(cost, 1e-12)


def _total(layers: Sequence[Layer]) -> Noise:
    return np.sum([layer.noise for layer in layers], axis=0) if layers else np.zeros(1)


def _decibels(noise: Noise) -> float:
    return float(-10 * np.log10(max(float(noise.max()), 1e-30)))


def _measured(module: Any, nodes: Sequence[Any], samples: Sequence[Any]) -> list[Layer]:
    chosen = samples[:_MEASURED]
    began = time.perf_counter()
    expected = [_outputs(module, sample) for sample in chosen]
    if 2 * (time.perf_counter() - began) * len(nodes) > _PATIENCE:
        raise TooSlow

    def noise(node: Any, change: _Change) -> Noise:
        with _changed(module, node, change):
            each = [_noise(want, _outputs(module, one)) for want, one in zip(expected, chosen, strict=True)]
        return np.asarray(np.mean(each, axis=0))

    roundings = _roundings(module, {node.name for node in nodes}, samples)
    sizes = {node.name: _stored(module, node) for node in nodes}
    macs = {node.name: node.meta["val"].numel() * _length(module, node) for node in nodes}
    all_sizes = sum(attribute(module, node.args[WEIGHT]).numel() for node in nodes)
    all_macs = sum(macs.values())
    found = []
    for node in nodes:
        rounding = roundings[node.name]
        plain, learnt = noise(node, rounding.plain), noise(node, rounding.learnt)
        unlike = learnt + rounding.doubt * np.maximum(plain - learnt, 0.0)
        path = module_path(node) or node.name
        found.append(Layer(node.name, path, unlike, sizes[node.name] / all_sizes, macs[node.name] / all_macs))
    return found


@dataclass(frozen=True)
class _Change:
    """What is added to a layer's weight and bias."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class _Rounding:
    """A layer's weights rounded to the nearest, and as they are when they make up for each other."""

    plain: _Change
    learnt: _Change
    doubt: float
    """0: what was learnt holds for all inputs; 1: for none but the samples."""


def _roundings(module: Any, names: set[str], samples: Sequence[Any]) -> dict[str, _Rounding]:
    walk, found = Walk(module, samples), {}
    for node in module.graph.nodes:
        if node.name in names:
            weight, moments = attribute(module, node.args[WEIGHT]), Moments()
            for x in walk.inputs(node):
                seen = vectors(x, node, weight.shape)
                moments.add(seen, seen)
            found[node.name] = _rounding(weight, moments, centred=own_bias(node) is not None)
        walk.step(node)
    return found


def _rounding(weight: Any, moments: Moments, *, centred: bool) -> _Rounding:
    torch = stack().torch
    mean, _, squares, _ = moments.means(centred=centred)
    groups, length = mean.shape
    rows = weight.detach().double().reshape(groups, weight.shape[0] // groups, -1)
    steps = steps_of(rows, _HIGHEST)

    def change(rounded: Any) -> _Change:
        error = rounded - rows
        shift = torch.einsum("gol,gl->go", error, mean).reshape(-1)
        return _Change(error.reshape(weight.shape).to(weight.dtype), -shift.to(weight.dtype))

    return _Rounding(
        change(torch.round(rows / steps) * steps),
        change(on_grid(rows, squares, moments.count, _HIGHEST)),
        doubt(length, moments.count),
    )


@contextmanager
def _changed(module: Any, node: Any, change: _Change) -> Iterator[None]:
    weight, got = attribute(module, node.args[WEIGHT]), own_bias(node)
    changed = [(weight, change.weight)] + ([(attribute(module, got), change.bias)] if got is not None else [])
    before = [(tensor, tensor.detach().clone()) for tensor, _ in changed]
    for tensor, added in changed:
        tensor.add_(added)
    try:
        yield
    finally:
        for tensor, kept in before:
            tensor.copy_(kept)


def _stored(module: Any, node: Any) -> int:
    """How many numbers the compiler stores: in groups it fills up the inputs of each."""
    weight = attribute(module, node.args[WEIGHT])
    size: int = weight.numel()
    grouped = len(node.args) > GROUPS and node.args[GROUPS] > 1
    return size * max(_FILLED // weight.shape[1], 1) if grouped else size


def _length(module: Any, node: Any) -> int:
    """Inputs of one sum."""
    length: int = attribute(module, node.args[WEIGHT])[0].numel()
    return length


def _outputs(module: Any, sample: Any) -> list[Any]:
    args, kwargs = sample
    return [one.double() for one in tensors_in(module(*args, **kwargs)) if one.is_floating_point()]


def _noise(want: Sequence[Any], have: Sequence[Any]) -> Noise:
    ratios = []
    for old, new in zip(want, have, strict=True):
        signal = float((old**2).sum())
        ratios.append(float(((old - new) ** 2).sum()) / signal if signal else 0.0)
    return np.array(ratios or [0.0])
