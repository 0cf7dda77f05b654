"""Which nodes to make more precise: those that spare the most noise for what they cost.

Noise of independent roundings adds up, so that what one node does alone tells what it adds to the whole.
The sum is an estimate; whoever uses it measures the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.quantization.plan import Precision

Noise = NDArray[Any]
Nodes = tuple[str, ...]
_NEXT_TO_NOTHING = 0.02
"""Of the noise above the goal: all nodes together that spare less are not worth a border each."""


@dataclass(frozen=True)
class Option:
    """A node in one precision."""

    precision: Precision
    noise: Noise
    """Noise over signal at every output of every sample that was looked at, from this node alone."""
    cost: float
    float_macs: int = 0
    wide_macs: int = 0
    """Multiply-accumulates in integers that are wider than the scheme's."""


Options = Mapping[Nodes, Sequence[Option]]
"""Of each node, or of those that go together, from what it is to what is exact."""


@dataclass(frozen=True)
class Promotion:
    """Nodes that go together, and what they are raised to."""

    nodes: Nodes
    precision: Precision
    noise_before: float


def promote(
    options: Options,
    goal: Noise | float,
    most_float_macs: float,
    most_wide_macs: float = inf,
) -> tuple[Promotion, ...]:
    """Raise nodes from their first option until the noise at every output is below ``goal``, which may be
    another for each.

    ``options`` is ordered from cheap to exact. Ends early when nothing is left that helps or is allowed.
    """
    chosen = dict.fromkeys(options, 0)
    total = np.sum([steps[0].noise for steps in options.values()], axis=0)
    room = (most_float_macs, most_wide_macs)
    while np.any(total > goal):
        step = _best_step(options, chosen, total, goal, room)
        if step is None:
            break
        name, level = step
        old, new = options[name][chosen[name]], options[name][level]
        total = total - old.noise + new.noise
        room = (room[0] - new.float_macs + old.float_macs, room[1] - new.wide_macs + old.wide_macs)
        chosen[name] = level
    _take_back(options, chosen, total, goal, room[1])
    return tuple(
        Promotion(name, options[name][level].precision, float(np.max(options[name][0].noise)))
        for name, level in chosen.items()
        if level
    )


def _take_back(
    options: Options,
    chosen: dict[Nodes, int],
    total: Noise,
    goal: Noise | float,
    wide_room: float,
) -> None:
    """What cheap steps were taken for before a large one made them needless: each is a border crossed."""
    raised = [name for name, level in chosen.items() if level]
    for name in sorted(raised, key=lambda name: float(np.max(options[name][0].noise))):
        for level in range(chosen[name]):
            now, then = options[name][chosen[name]], options[name][level]
            back, wider = total - now.noise + then.noise, then.wide_macs - now.wide_macs
            if np.all(back <= goal) and wider <= wide_room:
                total, chosen[name], wide_room = back, level, wide_room - wider
                break


def _best_step(
    options: Options,
    chosen: Mapping[Nodes, int],
    total: Noise,
    goal: Noise | float,
    room: tuple[float, float],
) -> tuple[Nodes, int] | None:
    best, best_gain = None, 0.0
    over = np.maximum(total - goal, 0)
    least = float(np.sum(over)) * _NEXT_TO_NOTHING / len(options)
    for name, steps in options.items():
        now = steps[chosen[name]]
        for level in range(chosen[name] + 1, len(steps)):
            then = steps[level]
            if then.float_macs - now.float_macs > room[0] or then.wide_macs - now.wide_macs > room[1]:
                continue
            # Only what is above the goal counts: an output that is good enough needs nothing.
            spared = float(np.sum(over - np.maximum(total - now.noise + then.noise - goal, 0)))
            gain = spared / max(then.cost - now.cost, 1.0)
            if spared > least and gain > best_gain:
                best, best_gain = (name, level), gain
    return best
