"""A program on many samples at once, an operator at a time, so that layers can be changed on the way."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hexport.executorch.lowering.inside.operators import BIAS, WEIGHT, attribute
from hexport.executorch.lowering.inside.stack import stack

_MOST_BYTES = 2 << 30
"""Of what lies between layers."""


class Walk:
    """A program on all samples, an operator at a time; what no operator reads any more is let go."""

    def __init__(self, module: Any, samples: Sequence[Any]) -> None:
        torch = stack().torch
        own = copy.deepcopy(module)  # some programs write into what they hold
        self._nodes = {node.name: node for node in own.graph.nodes}
        self._runs = [torch.fx.Interpreter(own) for _ in samples]
        for run, sample in zip(self._runs, samples, strict=True):
            run.args_iter = iter(torch.utils._pytree.tree_leaves(sample))

    def step(self, node: Any) -> None:
        """The next operator."""
        own = self._nodes[node.name]
        for run in self._runs:
            run.env[own] = run.run_node(own)
            for done in run.user_to_last_uses.get(own, []):
                del run.env[done]

    def inputs(self, node: Any) -> list[Any]:
        """What a layer gets, sample by sample."""
        return [run.env[self._nodes[node.args[0].name]] for run in self._runs]

    def take(self, module: Any, node: Any) -> None:
        """The weights and the bias that a layer has in ``module``."""
        for got in node.args[WEIGHT : BIAS + 1]:
            if getattr(got, "op", "") == "get_attr":
                for run in self._runs:
                    run.env[self._nodes[got.name]] = attribute(module, got)


def fitting(module: Any, samples: list[Any]) -> list[Any]:
    """As many of the samples as there is room for: two walks hold what is alive of each."""
    torch = stack().torch
    sizes = {node: _bytes(node.meta.get("val")) for node in module.graph.nodes if node.op != "get_attr"}
    last = torch.fx.Interpreter(module).user_to_last_uses
    alive = most = 0
    for node in module.graph.nodes:
        alive += sizes.get(node, 0)
        most = max(most, alive)
        alive -= sum(sizes.get(done, 0) for done in last.get(node, []))
    return samples[: max(1, _MOST_BYTES // max(2 * most, 1))]


def tensors_in(value: Any) -> list[Any]:
    """Of what a program gives, or a node: however it is nested."""
    torch = stack().torch
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


def _bytes(value: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tensors_in(value))
