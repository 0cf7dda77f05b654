"""The fewest nodes to pin to the CPU so that a model runs on the NPU and gives the right numbers.

Suspects are gathered generously, because a node alone may be right or wrong for reasons that do not matter in
the whole; then each pin must prove that the model is worse without it, or it is undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from hexport.preparation.culprits import Blame, Suspect, find_suspects
from hexport.preparation.tensors import Tensors
from hexport.preparation.trials import Trials
from hexport.preparation.wrong_runs import find_in_run
from hexport.rewrite.pinning import pin, why_not_pinned

_NOISE_DB = 2.0
_AMPLE_DB = 20.0
"""So much above what is enough, a pin that adds precision is not worth a step to the CPU."""
_MOST_SINGLE = 16
"""Pins that are each tried without; more of them only by operator."""
_ALONE_SHARE = 0.5
"""Of the time, for running nodes alone; the rest is for runs of nodes and for proving."""


@dataclass(frozen=True)
class Score:
    """How a whole model does on the NPU."""

    db: float
    """Against the CPU; −infinite when it fails or gives no numbers."""
    failure: str = ""

    @property
    def rank(self) -> tuple[bool, float]:
        return (not self.failure, self.db)

    def __str__(self) -> str:
        return self.failure or ("other numbers" if self.db == -math.inf else f"{self.db:.0f} dB")


Judge = Callable[[ir.Model], Score]


@dataclass(frozen=True)
class Search:
    """What was found."""

    model: ir.Model
    score: Score
    pins: tuple[Suspect, ...]
    undone: tuple[Suspect, ...]
    """Looked guilty alone; the model does no worse without the pin."""


@dataclass
class PinSearch:
    """Looks for pins on one model."""

    model: ir.Model
    judge: Judge
    tensors: Tensors
    trials: Trials
    enough_db: float
    deadline: float
    suspects: dict[str, Suspect] = field(default_factory=dict)

    def run(self, start: Score) -> Search:
        """Pin what is to blame; gives the model as it was when that does not help."""
        score, pins = self._gather(start)
        if score.rank <= (start.rank[0], start.db + _NOISE_DB):
            return Search(self.model, start, (), tuple(self.suspects.values()))
        score, pins = self._undo_needless(score, pins)
        kept = tuple(self.suspects[name] for name in pins)
        undone = tuple(suspect for name, suspect in self.suspects.items() if name not in pins)
        return Search(self.pinned(pins), score, kept, undone)

    def pinned(self, names: Iterable[str]) -> ir.Model:
        """A copy with these nodes pinned, each with its reason."""
        copy = self.model.clone()
        nodes = {str(node.name): node for node in copy.graph}
        for name in names:
            node = nodes[name]
            if not why_not_pinned(node):
                pin(node, self.suspects[name].reason, self.tensors.shapes(node))
        return copy

    def _gather(self, start: Score) -> tuple[Score, list[str]]:
        """Suspects, the clear ones first, until the model is right; the best that was met on the way."""
        begun = time.monotonic()
        alone = begun + (self.deadline - begun) * _ALONE_SHARE
        found = list(find_suspects(self.model, self.tensors, self.trials, self.enough_db, alone))
        best = start
        pins: list[str] = []
        for blame in (Blame.FAILS, Blame.WRONG, Blame.ROUNDED):
            more = {suspect.name: suspect for suspect in found if suspect.blame is blame}
            if not more:
                continue
            self.suspects |= more
            best, pins = self._better(best, pins)
            if self._right(best):
                return best, pins
        while time.monotonic() < self.deadline:
            current = self.pinned(self.suspects)
            run = find_in_run(current, self.tensors, self.trials, self.enough_db, self.deadline)
            if not run:
                break
            self.suspects |= {suspect.name: suspect for suspect in run}
            best, pins = self._better(best, pins)
            if self._right(best):
                break
        return best, pins

    def _better(self, best: Score, pins: list[str]) -> tuple[Score, list[str]]:
        score = self.judge(self.pinned(self.suspects))
        return (score, list(self.suspects)) if score.rank > best.rank else (best, pins)

    def _right(self, score: Score) -> bool:
        return not score.failure and score.db >= self.enough_db

    def _undo_needless(self, score: Score, pins: list[str]) -> tuple[Score, list[str]]:
        """Without each operator's pins, then without each single one; dear ones first."""
        wanted = min(score.db - _NOISE_DB, self.enough_db + _AMPLE_DB)
        for group in self._groups(pins):
            if time.monotonic() > self.deadline or len(pins) == len(group):
                continue
            without = [name for name in pins if name not in group]
            tried = self.judge(self.pinned(without))
            if not tried.failure and tried.db >= wanted:
                score, pins = tried, without
        return score, pins

    def _groups(self, pins: list[str]) -> list[set[str]]:
        by_op: dict[str, set[str]] = {}
        for name in sorted(pins, key=lambda name: -(self.suspects[name].macs or 0)):
            by_op.setdefault(self.suspects[name].op, set()).add(name)
        groups = list(by_op.values())
        if len(pins) <= _MOST_SINGLE:
            groups += [{name} for group in by_op.values() if len(group) > 1 for name in sorted(group)]
        return groups
