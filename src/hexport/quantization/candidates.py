"""What the search tries: how much of it, the candidates, and what the report keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.observe.comparing import Comparison
from hexport.quantization.plan import Plan
from hexport.quantization.recipe import Recipe
from hexport.quantization.workshop import Workshop

if TYPE_CHECKING:
    from hexport.observe.verdict import Verdict


ROUNDS = 2
"""How often a scheme is pursued: the goal is raised once if the NPU gives less than the CPU."""


@dataclass(frozen=True)
class Effort:
    """How much is tried."""

    recipes: tuple[Recipe, ...]
    promotions: int
    """How often the set of promoted nodes is enlarged."""
    npu_samples: int
    """0: it is not run there, unless a goal was asked for."""
    reconciliations: int
    """How many nodes that the NPU computes differently are looked for."""
    layers: bool = False
    """Whether layers inside the model are measured on the NPU, too."""

    @property
    def most_steps(self) -> int:
        """What one scheme may take: models that are made and compared on the CPU, and runs on the NPU."""
        # A candidate, then each node that is cured, made and run; then the run on more samples.
        on_npu = 2 + 2 * self.reconciliations if self.npu_samples else 0
        recipes = len(self.recipes)
        # Those that win over the first are compared with it once more, on more samples.
        return recipes + (recipes if recipes > 1 else 0) + ROUNDS * (self.promotions + on_npu)


EFFORTS: Mapping[str, Effort] = {
    "fast": Effort((Recipe(),), 0, 0, 0),
    "normal": Effort(
        (
            Recipe(),
            Recipe(carry_errors=True),
            Recipe("min-max", carry_errors=True),
            # The stock recipe's ranges, and nothing that learns from the samples but the bias.
            Recipe("min-max"),
        ),
        4,
        2,
        2,
    ),
    "high": Effort(
        (
            *(
                Recipe(ranges, carried, corrected)
                for carried in (True, False)
                for corrected in (True, False)
                for ranges in ("mse", "min-max", "percentile", "entropy")
            ),
            *(
                Recipe(ranges, carried, equalized=True)
                for carried in (True, False)
                for ranges in ("mse", "min-max")
            ),
            *(
                Recipe(carry_errors=carried, measure_bias=True, equalized=equalized)
                for carried in (True, False)
                for equalized in (False, True)
            ),
        ),
        8,
        4,
        4,
        layers=True,
    ),
}


def suited(recipes: Sequence[Recipe], plan: Plan, shop: Workshop, say: Callable[[str], None]) -> list[Recipe]:
    """Those that can make a difference; the first always."""
    first, *others = recipes
    found = [first, *(r for r in others if r.ranges == first.ranges or _is_coarse(plan))]
    if shop.overrides:
        # Ranges that the user gave are of the tensors as they are.
        found = [first, *(r for r in found[1:] if not r.equalized)]
    if any(r.equalized for r in found) and shop.equalized.model is None:
        say(f"nothing is equalised: {shop.equalized.note}")
        found = list(dict.fromkeys(replace(r, equalized=False) for r in found))
    return found


def _is_coarse(plan: Plan) -> bool:
    """With 16 bits there is nothing to gain from cutting ranges."""
    return any(p.activation is not None and p.activation.bits == 8 for p in plan.precisions.values())


@dataclass(frozen=True)
class Candidate:
    """A quantised model and how good it is."""

    label: str
    plan: Plan
    recipe: Recipe
    model: ir.Model
    cost: float
    cpu: Comparison
    hard: Comparison | None = None
    """On the CPU, on samples that it was fitted to and that turned out hard; None while there are none."""
    verdict: Verdict | None = None
    npu: Comparison | None = None
    wide: Comparison | None = None
    """On the NPU, on samples that it was fitted to as well; None where that was not tried."""
    wide_samples: int = 0
    """How many those are altogether."""
    drop: float | None = None
    """How much the user's metric loses on the NPU."""
    failure: str = ""

    @property
    def sqnr_db(self) -> float:
        """On the NPU if it was measured there."""
        if self.failure:
            return -inf
        return (self.npu or self.cpu).lowest_db

    def reaches(self, goal_db: float, allowance_db: float) -> bool:
        """Whether unseen samples come to the goal, and those that it was fitted to nearly."""
        fitted = self.wide is None or self.wide.lowest_db >= goal_db - allowance_db
        return not self.failure and self.sqnr_db >= goal_db and fitted

    @property
    def standing(self) -> tuple[bool, float]:
        """The larger the better, where none is enough: what was worth a wide look comes before the rest."""
        if self.wide is None or self.failure:
            return False, self.sqnr_db
        return True, min(self.sqnr_db, self.wide.lowest_db)


@dataclass(frozen=True)
class Trial:
    """A candidate that was measured, without its model: what the report keeps."""

    label: str
    recipe: str
    cost: float
    float_nodes: int
    cpu_db: float
    mean_db: float | None = None
    """There, the mean of more samples, with those that it was fitted to; None where it was not asked."""
    npu_db: float | None = None
    all_db: float | None = None
    """On the NPU, on samples that it was fitted to as well."""
    drop: float | None = None
    failure: str = ""

    @classmethod
    def of(cls, candidate: Candidate, mean_db: float | None = None) -> Trial:
        """What is kept of a candidate as far as it was measured."""
        return cls(
            candidate.label,
            str(candidate.recipe),
            candidate.cost,
            sum(p.activation is None for p in candidate.plan.precisions.values()),
            candidate.cpu.lowest_db,
            mean_db,
            candidate.npu.lowest_db if candidate.npu else None,
            candidate.wide.lowest_db if candidate.wide else None,
            candidate.drop,
            candidate.failure,
        )
