"""How much each node's rounding harms by itself: one model with switches, in which it is turned on alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.reference import cpu_session
from hexport.quantization.activations import Activations
from hexport.quantization.observing import Sample
from hexport.quantization.plan import Plan
from hexport.quantization.recurrences import places
from hexport.quantization.roles import weight_of
from hexport.quantization.switchboard import SWITCHES, switchboard
from hexport.quantization.weights import LayerIntegers

_FIRST_GROUPS = 24
_MOST_RUNS = 200
"""How many groups are tried: a count and no time, so that the same gives the same on any machine."""
_LITTLE = 0.004
"""The share of all harm below which a group of nodes is not looked into: what it does is spread over them."""


@dataclass(frozen=True)
class Harm:
    """What rounding at one node alone does to the outputs: noise over signal, for each of each sample.

    Nodes that share their weights are one: each makes the same error, so that they do not average out. So are
    the steps of a recurrence.
    """

    nodes: tuple[str, ...]
    noise: NDArray[Any]


def harms(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    samples: Sequence[Sample],
    folder: Path,
    arch: int,
) -> list[Harm]:
    """The harm of every node that computes in integers."""
    nodes = _units(model, plan)
    path = folder / "switches.onnx"
    ir.save(switchboard(model, plan, activations, weights, nodes, arch), path)
    board = _Switched(cpu_session(path), len(nodes), samples)
    found: dict[int, NDArray[Any]] = {}
    size = max(1, len(nodes) // _FIRST_GROUPS)
    groups = [range(begin, min(begin + size, len(nodes))) for begin in range(0, len(nodes), size)]
    together = {group: board.noise(group) for group in groups}
    least = sum(together.values(), np.zeros(len(samples) * len(model.graph.outputs))) * _LITTLE
    runs = len(groups)
    while groups:
        # The group that harms most is looked into first: runs may end before all are.
        group = max(groups, key=lambda g: (bool(np.any(together[g] > least)), float(together[g].max())))
        groups.remove(group)
        noise = together[group]
        if len(group) == 1 or runs >= _MOST_RUNS or bool(np.all(noise <= least)):
            for index in group:
                found[index] = noise / len(group)
            continue
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            together[half] = board.noise(half)
            groups.append(half)
            runs += 1
    path.unlink()
    return [Harm(names, found[index]) for index, names in enumerate(nodes)]


def _units(model: ir.Model, plan: Plan) -> list[tuple[str, ...]]:
    units: dict[str, list[str]] = {}
    steps = places(model)
    for node in model.graph:
        if plan.of(node).activation is None:
            continue
        name, weight = str(node.name), weight_of(node)
        shared = node.inputs[weight.index] if weight is not None else None
        alone = f"step {steps[name]} {plan.of(node)}" if name in steps else f"node {name}"
        units.setdefault(alone if shared is None else f"weight {shared.name}", []).append(name)
    return [tuple(names) for names in units.values()]


class _Switched:
    """The switchboard at work."""

    def __init__(self, session: Any, count: int, samples: Sequence[Sample]) -> None:
        self._session, self._count, self._samples = session, count, samples
        self._truth = [self._run(sample, ()) for sample in samples]

    def noise(self, on: Sequence[int]) -> NDArray[Any]:
        """Of sample after sample, with these nodes rounding and no other."""
        pairs = zip(self._truth, self._samples, strict=True)
        return np.concatenate([_noise(truth, self._run(sample, on)) for truth, sample in pairs])

    def _run(self, sample: Sample, on: Sequence[int]) -> Any:
        switches = np.zeros(self._count, bool)
        switches[list(on)] = True
        return self._session.run(None, {**sample, SWITCHES: switches})


def _noise(truth: Sequence[Any], got: Sequence[Any]) -> NDArray[Any]:
    shares = []
    for a, b in zip(truth, got, strict=True):
        if a.shape != b.shape:
            # A loop that ends on data ended elsewhere.
            shares.append(1.0)
            continue
        if not np.issubdtype(a.dtype, np.floating):
            shares.append(float(np.mean(a != b)))
            continue
        # Where the model itself gives no number, nothing can be right or wrong.
        there = np.isfinite(a)
        signal = float(np.sum(np.square(a[there], dtype=np.float64)))
        error = float(np.sum(np.square(b[there].astype(np.float64) - a[there])))
        broken = not np.isfinite(error) or (error > 0 and not signal)
        shares.append(1.0 if broken else error / signal if signal else 0.0)
    return np.array(shares)
