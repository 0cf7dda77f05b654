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

from hexport.executorch.lowering.inside.layers import is_layer, own_bias, vectors
from hexport.executorch.lowering.inside.norms import join_norms
from hexport.executorch.lowering.inside.operators import WEIGHT, attribute
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.inside.walking import Walk
from hexport.quantization.carrying import carried
from hexport.quantization.damping import assumed_damping, doubt

_HIGHEST = {"8w": 127, "4w": 7}
"""By the last part of a scheme's name; 16 bits need no such care."""
_HELD = (0.5, 2.0)
"""How strongly weights are held where they are, and how much more where the samples tell little."""
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
    layers = {node.name for node in made.graph.nodes if node.name not in others and is_layer(made, node)}
    whole, rounded = Walk(made, samples), Walk(made, samples)
    with stack().torch.no_grad():
        for node in made.graph.nodes:
            if node.name in layers:
                moments = Moments()
                shape = attribute(made, node.args[WEIGHT]).shape
                for want, have in zip(whole.inputs(node), rounded.inputs(node), strict=True):
                    moments.add(vectors(want, node, shape), vectors(have, node, shape))
                _round(made, node, moments, highest)
                rounded.take(made, node)
            whole.step(node)
            rounded.step(node)
    return made


class Moments:
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
        same = wanted is found
        found = found.double()
        wanted = found if same else wanted.double()
        squares = found @ found.transpose(1, 2)
        self.squares = self.squares + squares
        self.products = self.products + (squares if same else wanted @ found.transpose(1, 2))
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


def _round(module: Any, node: Any, moments: Moments, highest: int) -> None:
    torch = stack().torch
    parameter = attribute(module, node.args[WEIGHT])
    weight = parameter.detach().double()
    groups = moments.squares.shape[0]
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    bias = own_bias(node)
    wanted, found, squares, products = moments.means(centred=bias is not None)
    strength = torch.einsum("gii->gi", squares).mean(1)
    strength = strength.clamp(min=max(_FAINT * float(strength.mean()), _LEAST))
    held = _HELD[0] + _HELD[1] * doubt(squares.shape[1], moments.count)
    hold = held * strength[:, None, None] * torch.eye(squares.shape[1], dtype=squares.dtype)
    moved = torch.linalg.solve(squares + hold, rows @ (products + hold), left=False)
    changed = on_grid(moved, squares, moments.count, highest)
    parameter.copy_(changed.reshape(weight.shape).to(parameter.dtype))
    if bias is not None:
        shift = torch.einsum("gol,gl->go", changed, found) - torch.einsum("gol,gl->go", rows, wanted)
        own = attribute(module, bias)
        own.copy_((own.double() - shift.reshape(-1)).to(own.dtype))


def on_grid(rows: Any, squares: Any, count: int, highest: int) -> Any:
    """Whole steps of each row's largest, by the second moments of the vectors that the rows multiply."""
    steps = steps_of(rows, highest)
    damping = assumed_damping(squares.shape[1], count)
    whole = carried(
        rows.numpy(), steps[:, :, 0].numpy(), squares.numpy(), damping, highest, keep_largest=True
    )
    return stack().torch.from_numpy(whole) * steps


def steps_of(rows: Any, highest: int) -> Any:
    """As the quantiser finds them: group, output, 1."""
    torch = stack().torch
    largest = rows.abs().amax(2, keepdim=True)
    return torch.where(largest > 0, largest / highest, torch.ones_like(largest))
