"""The search: the cheapest precisions that come close enough to the float model, judged on the NPU.

Candidates are made and compared on the CPU, which takes seconds; the best one is then run on the NPU's own
arithmetic, which has the last word. Every candidate that was measured is kept for the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hexport.backend.failures import BackendError
from hexport.observe.decibels import USELESS_DB
from hexport.quantization.candidates import ROUNDS, Candidate, Effort, Trial, suited
from hexport.quantization.goal import UNSEEN_DB, missing_db, noise_allowed
from hexport.quantization.judging import Judge, affordable_samples
from hexport.quantization.pacing import Pace
from hexport.quantization.plan import FLOAT, Plan, Precision, settle_moving
from hexport.quantization.planning import plan_of
from hexport.quantization.promoting import Options, promote
from hexport.quantization.raising import better_than, harms_of, options_for, take_along
from hexport.quantization.recipe import Recipe
from hexport.quantization.reconciling import find_misread
from hexport.quantization.shares import FLOAT_SHARE, WIDE_SHARE, float_macs, is_within
from hexport.quantization.switches import Harm
from hexport.quantization.work import all_macs, cost
from hexport.quantization.workshop import Workshop
from hexport.toolchain import WorkerError

_MARGIN_DB = 1.0
"""Above the goal on the CPU, because the NPU gives a little less."""
_WORST = 10
_CHANCE_DB = 0.3
"""On a few samples: a recipe must win by more than this over one that comes before it."""
_ASKED_FOR_MORE = 10 ** (-1 / 10)
"""The noise that may be left, after a round that was not enough: at least a decibel less."""
_TRUSTED_DB = 3.0
"""The NPU may be this far below the CPU before it is asked why."""


@dataclass
class Search:
    """One model's search."""

    shop: Workshop
    judge: Judge
    goal_db: float
    """What the search aims at."""
    effort: Effort
    settle: Callable[[Plan], None]
    """Puts into a plan what the user wants of single nodes, over everything else."""
    say: Callable[[str], None]
    most_drop: float | None = None
    """What the user's metric may lose; then it decides, and not the goal in dB."""
    tried: list[Trial] = field(default_factory=list)
    worst: list[Harm] = field(default_factory=list)
    """The layers that harm most by themselves, as far as that was measured."""
    _pace: Pace = field(default_factory=lambda: Pace(1))
    _starts: dict[Precision, Candidate] = field(default_factory=dict)
    """Each scheme's own: the same whatever is asked for, and however much may be in fp16."""
    _raisable: dict[tuple[Precision, int], Options] = field(default_factory=dict)
    """What nodes of these can be raised to, as seen with so many hard samples."""

    def is_enough(self, candidate: Candidate) -> bool:
        """Whether it is what was asked for, as far as it was measured."""
        if candidate.failure:
            return False
        if self.most_drop is not None:
            return candidate.drop is not None and candidate.drop <= self.most_drop
        return candidate.reaches(self.goal_db, UNSEEN_DB)

    def expect(self, schemes: int) -> None:
        """Say what it will cost at most: so many schemes, each with all that the effort allows."""
        most = schemes * self.effort.most_steps
        self._pace = Pace(most)
        self.say(f"at most {most} steps, each a model to make and compare, or to run on the NPU")

    def pursue(self, scheme: Precision, label: str) -> Candidate:
        """The scheme, with a tenth in fp16 at most; and only if that is of no use to anybody, with more."""
        self.expect(1)
        found = self.within(scheme, label, FLOAT_SHARE, WIDE_SHARE)
        if found.sqnr_db >= USELESS_DB or not self.effort.promotions or not self.judge.target.float:
            return found
        self.expect(1)
        more = self.within(scheme, f"{label} and fp16", 1.0, WIDE_SHARE)
        return more if more.sqnr_db > found.sqnr_db else found

    def within(self, scheme: Precision, label: str, float_share: float, wide_share: float = 1.0) -> Candidate:
        """The scheme with its best recipe, and the nodes in fp16 that the goal needs and the share allows."""
        better = better_than(scheme, has_float=self.judge.target.float)
        best: Candidate | None = None
        margin, confirmed = _MARGIN_DB, list[Mapping[str, Precision]]()
        for _ in range(ROUNDS):
            chosen = start = self._start(scheme, label)
            if missing_db(start, self.goal_db + margin) > 0 and self.effort.promotions and better:
                key = scheme, len(self.judge.hard[0])
                if key not in self._raisable:
                    # Once: on a large model it takes a minute.
                    self._raisable[key] = self._options(start, better)
                shares = float_share, wide_share
                chosen = self._promoted(start, self._raisable[key], shares, self.goal_db + margin)
            if chosen.plan.precisions in confirmed:
                break
            confirmed.append(chosen.plan.precisions)
            found = self.confirm(chosen, float_share)
            if best is None or found.standing > best.standing:
                best = found
            # More precision only helps where it was the CPU's figure that promised too much.
            if self.is_enough(found) or found.failure or found.cpu.lowest_db < self.goal_db:
                break
            margin += max(found.cpu.lowest_db - found.sqnr_db, _MARGIN_DB)
        assert best is not None
        return best

    def in_float(self) -> Candidate:
        """The prepared model as it is: fp16 on the NPU."""
        model = self.shop.prepared()
        total = sum(cost(node, FLOAT) for node in model.graph)
        plan = Plan({str(node.name): FLOAT for node in model.graph})
        (cpu,) = self.judge.on_cpu(model)
        return self._widely(self._on_npu(Candidate("fp16", plan, Recipe(), model, total, cpu)))

    def confirm(self, candidate: Candidate, float_share: float) -> Candidate:
        """Measured on the NPU; where it differs from the CPU, the nodes to blame are found and made float.

        Of what is of use, no more becomes float than the share allows.
        """
        if not self.effort.npu_samples:
            return candidate
        confirmed = self._on_npu(candidate)
        for _ in range(self.effort.reconciliations if self.judge.target.float else 0):
            as_promised = confirmed.sqnr_db >= confirmed.cpu.lowest_db - _TRUSTED_DB
            if self.is_enough(confirmed) or as_promised:
                break
            npu = "it fails" if confirmed.failure else f"{confirmed.sqnr_db:.0f}"
            self.say(
                f"{confirmed.label}: {confirmed.cpu.lowest_db:.0f} dB on the CPU, {npu} on the NPU; "
                "looking for the node"
            )
            name = find_misread(self.shop, self.judge, confirmed.plan, confirmed.recipe, _TRUSTED_DB)
            if name is None:
                self.say(
                    f"{confirmed.label}: none is found: none is in integers, or there are too many to try"
                )
                break
            plan = confirmed.plan.copy()
            plan.set(name, FLOAT, "the NPU computes it otherwise than the CPU in integers")
            self.settle(plan)
            settle_moving(self.shop.model, plan)
            if confirmed.sqnr_db >= USELESS_DB and not is_within(self.shop.model, plan, float_share):
                self.say(f"{confirmed.label}: {name} parts them, and is too much of the model for fp16")
                break
            cured = self._on_npu(self._candidate(plan, confirmed.recipe, confirmed.label))
            if cured.sqnr_db <= confirmed.sqnr_db:
                break
            confirmed = cured
        return self._widely(confirmed)

    def _widely(self, candidate: Candidate) -> Candidate:
        """Where it seems enough, also on samples that it was fitted to: there it can only be better, so what
        it misses there it misses."""
        short = candidate.failure or candidate.sqnr_db < self.goal_db - UNSEEN_DB
        if candidate.npu is None or short or self.most_drop is not None:
            return candidate
        others = self._others
        if not self.judge.others(others)[0]:
            return candidate
        try:
            npu, count = self.judge.widely_on_npu(candidate.model, self.effort.npu_samples, others)
        except (BackendError, WorkerError) as error:
            failed = replace(candidate, failure=f"{error.what}: {error.why}")
            self._note(failed)
            return failed
        self.say(f"{candidate.label}: {npu.lowest_db:.1f} dB on all {count} samples; {self._pace.step()}")
        measured = replace(candidate, wide=npu, wide_samples=count)
        self._note(measured)
        known = len(self.judge.samples[: self.effort.npu_samples])
        if not self.is_enough(measured) and npu.worst_sample >= known:
            self.judge.mind(npu.worst_sample - known)
        return measured

    @property
    def _others(self) -> int:
        return affordable_samples(sum(all_macs(self.shop.model).values()))

    def _plan(self, scheme: Precision) -> Plan:
        plan = plan_of(self.shop, scheme, has_float=self.judge.target.float)
        self.settle(plan)
        settle_moving(self.shop.model, plan)
        return plan

    def _start(self, scheme: Precision, label: str) -> Candidate:
        if scheme not in self._starts:
            self._starts[scheme] = self._best_recipe(self._plan(scheme), label)
        return self._minding(replace(self._starts[scheme], label=label))

    def _minding(self, candidate: Candidate) -> Candidate:
        """With its figure of the samples that turned out hard, of which more may be known by now."""
        return replace(candidate, hard=self.judge.hard_on_cpu(candidate.model))

    def _best_recipe(self, plan: Plan, label: str) -> Candidate:
        """The first, unless another wins on unseen samples, and on all.

        The worst of a few samples is that in which some decision falls the other way, which is chance; what
        wins by their median must not lose in the mean, which the worst ones make.
        """
        first, *others = self._candidates(plan, suited(self.effort.recipes, plan, self.shop, self.say), label)
        rivals = [c for c in others if c.cpu.sqnr_db > first.cpu.sqnr_db + _CHANCE_DB]
        if not rivals:
            return first
        compared = [first, *rivals]
        figures = self._mean_db(compared)
        best = max(figures)
        return next(c for c, db in zip(compared, figures, strict=True) if db >= best - _CHANCE_DB)

    def _mean_db(self, candidates: Sequence[Candidate]) -> list[float]:
        """What each gives on the CPU in the mean, also of samples that it was fitted to."""
        models = (candidate.model for candidate in candidates)
        found = [each.mean_db for each in self.judge.widely_on_cpu(self._others, *models)]
        for candidate, db in zip(candidates, found, strict=True):
            self.say(f"{candidate.label}, {candidate.recipe}: {db:.1f} dB in the mean; {self._pace.step()}")
            self._note(candidate, mean_db=db)
        return found

    def _promoted(
        self,
        start: Candidate,
        options: Options,
        shares: tuple[float, float],
        wanted_db: float,
    ) -> Candidate:
        total = sum(all_macs(self.shop.model).values())
        allowed = max(shares[0] * total - float_macs(self.shop.model, start.plan), 0.0)
        outputs, hard = len(self.shop.model.graph.outputs), len(self.judge.hard[0])
        goal = noise_allowed(wanted_db, outputs, hard)
        best, done, tried = start, None, [start.plan.precisions]
        for _ in range(self.effort.promotions):
            plan = start.plan.copy()
            promotions = promote(options, goal, allowed, shares[1] * total)
            if promotions == done:
                break
            done = promotions
            for raised in promotions:
                reason = f"alone it leaves {-10 * np.log10(max(raised.noise_before, 1e-12)):.0f} dB"
                for name in raised.nodes:
                    plan.set(name, raised.precision, reason)
                    take_along(self.shop.model, plan, name)
            self.settle(plan)
            settle_moving(self.shop.model, plan)
            if plan.precisions in tried:
                # The user's word took back what was raised; what is raised next may stay.
                goal = goal * _ASKED_FOR_MORE
                continue
            tried.append(plan.precisions)
            candidate = self._minding(self._candidate(plan, start.recipe, start.label))
            missing = missing_db(candidate, wanted_db)
            if missing <= 0:
                return candidate
            if missing < missing_db(best, wanted_db):
                best = candidate
            # The sum was too hopeful: ask for as much less noise as is missing, and then some.
            goal = goal * min(10 ** (-missing / 10), _ASKED_FOR_MORE)
        return best

    def _options(self, start: Candidate, to: list[Precision]) -> Options:
        measured = harms_of(start, self.shop, self.judge)
        self.worst = sorted(measured, key=lambda harm: -float(harm.noise.max()))[:_WORST]
        return options_for(start, measured, to, self.shop, self.judge)

    def _candidate(self, plan: Plan, recipe: Recipe, label: str) -> Candidate:
        return self._candidates(plan, [recipe], label)[0]

    def _candidates(self, plan: Plan, recipes: Sequence[Recipe], label: str) -> list[Candidate]:
        total = sum(cost(node, plan.of(node)) for node in self.shop.model.graph)
        # All at once only where there is somebody to share the work with: each is a whole model.
        size = len(recipes) if self.judge.executor is not None else 1
        found = []
        for begin in range(0, len(recipes), size):
            some = recipes[begin : begin + size]
            models = [self.shop.build(plan, recipe) for recipe in some]
            for recipe, model, cpu in zip(some, models, self.judge.on_cpu(*models), strict=True):
                found.append(Candidate(label, plan, recipe, model, total, cpu))
                self.say(f"{label}, {recipe}: {cpu.lowest_db:.1f} dB on the CPU; {self._pace.step()}")
                self._note(found[-1])
        return found

    def _on_npu(self, candidate: Candidate) -> Candidate:
        try:
            verdict, npu, drop = self.judge.on_npu(candidate.model, self.effort.npu_samples)
        except (BackendError, WorkerError) as error:
            measured = replace(candidate, failure=f"{error.what}: {error.why}")
        else:
            measured = replace(candidate, verdict=verdict, npu=npu, drop=drop)
            self.say(f"{candidate.label}: {npu.lowest_db:.1f} dB on the NPU; {self._pace.step()}")
        self._note(measured)
        return measured

    def _note(self, candidate: Candidate, mean_db: float | None = None) -> None:
        self.tried.append(Trial.of(candidate, mean_db))
