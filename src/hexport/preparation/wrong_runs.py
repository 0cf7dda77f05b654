"""The smallest run of nodes that the NPU gets wrong together though it does each of them right alone.

The compiler fuses neighbours and chooses layouts for them, and rounding adds up: no single node shows that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from hexport.preparation.culprits import Blame, Suspect, cost_of, describe
from hexport.preparation.excerpts import excerpt
from hexport.preparation.nearness import nearness
from hexport.preparation.tensors import Tensors
from hexport.preparation.trials import Trials
from hexport.rewrite.pinning import pin, why_not_pinned
from hexport.rewrite.values import constant


@dataclass(frozen=True)
class _Place:
    """Where runs are looked for."""

    model: ir.Model
    nodes: Sequence[ir.Node]
    tensors: Tensors
    trials: Trials
    enough_db: float

    def complaint(self, first: int, end: int, pinned: frozenset[str] = frozenset()) -> str:
        """What is wrong with these nodes together, when some of them are pinned; empty when nothing."""
        part = excerpt(self.model, self.nodes[first:end], self.tensors)
        if part is None:
            return ""
        for node in [node for node in part.model.graph if node.name in pinned]:
            pin(node, "tried", self.tensors.shapes(node))
        trial = self.trials.on_npu(part.model, part.feeds)
        if trial.failure:
            return trial.failure
        near = nearness(part.expected, trial.outputs)
        return "" if near >= self.enough_db else describe(near)


def find_in_run(
    model: ir.Model, tensors: Tensors, trials: Trials, enough_db: float, deadline: float
) -> list[Suspect]:
    """Of the smallest wrong run, the cheapest node whose pin makes it right, or all its nodes.

    Empty when there is no such run, or the deadline came first.
    """
    nodes = [node for node in model.graph if any(constant(value) is None for value in node.outputs)]
    place = _Place(model, nodes, tensors, trials, enough_db)
    found = _smallest(place, deadline)
    if found is None:
        return []
    first, end = found
    complaint = place.complaint(first, end)
    free = [node for node in nodes[first:end] if not why_not_pinned(node)]
    suspects = sorted(
        (Suspect(str(n.name), n.op_type, Blame.TOGETHER, complaint, cost_of(n, tensors)) for n in free),
        key=lambda suspect: suspect.macs or 0,
    )
    for suspect in suspects:
        if time.monotonic() > deadline:
            return []
        if not place.complaint(first, end, frozenset({suspect.name})):
            return [suspect]
    return suspects


def _smallest(place: _Place, deadline: float) -> tuple[int, int] | None:
    """The first end at which the nodes from the beginning are wrong; then the last beginning that is too."""
    total = len(place.nodes)
    if not place.complaint(0, total):
        return None

    def wrong_to(end: int) -> bool:
        return bool(place.complaint(0, end))

    end = _turn(0, total, wrong_to, deadline)
    first = -_turn(-end, 0, lambda begin: bool(place.complaint(-begin, end)), deadline)
    return first, end


def _turn(good: int, bad: int, is_bad: Callable[[int], bool], deadline: float) -> int:
    """The smallest number after ``good`` that is bad, ``bad`` being so, by halving; early at the deadline."""
    while bad - good > 1 and time.monotonic() < deadline:
        middle = (good + bad) // 2
        if is_bad(middle):
            bad = middle
        else:
            good = middle
    return bad
