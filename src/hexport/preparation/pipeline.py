"""The order of work: clean up, cure the compiler's faults, then ask and rewrite until nothing improves."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from hexport.backend.failures import BackendError
from hexport.errors import HexportError
from hexport.observe.comparing import Comparison
from hexport.observe.decibels import USABLE_DB
from hexport.observe.verdict import Verdict
from hexport.preparation import cleaning
from hexport.preparation.workbench import EQUAL_DB, Attempt, Workbench
from hexport.rewrite.applying import apply_rules
from hexport.rewrite.rule import Purpose, Rule
from hexport.toolchain import WorkerError

_MOST_ROUNDS = 6
GOOD_DB = 60.0
"""fp16 itself leaves about this much; there is nothing to gain above it."""

_WITH_BODIES = frozenset({"Loop", "Scan", "If"})
_NOISE_DB = 2.0
_ENOUGH_DB = 40.0
_SLOW_SECONDS = 30.0
_MUCH_FASTER = 3.0
"""A compile of minutes is worth a few dB, where enough of them are left."""

RuleSource = Callable[[Purpose], Sequence[Rule]]


@dataclass(frozen=True)
class Standing:
    """How a model does on the backend: a verdict, or why there is none."""

    verdict: Verdict | None
    failure: WorkerError | None
    htp: Comparison | None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the verdict and of the figures should know."""
        outputs = self.htp.outputs if self.htp is not None else ()
        warnings = self.verdict.warnings if self.verdict is not None else ()
        return (*(output.remark for output in outputs if output.remark), *warnings)

    @property
    def rank(self) -> tuple[bool, bool, int, int, float]:
        """Larger is better: it compiles, is of use, fewer CPU nodes and partitions, closer to the truth."""
        if self.verdict is None:
            return (False, False, 0, 0, -math.inf)
        quality = -math.inf if self.htp is None else min(self.htp.sqnr_db, GOOD_DB)
        cpu, partitions = len(self.verdict.cpu_nodes), len(self.verdict.partitions)
        return (True, quality >= USABLE_DB, -cpu, -partitions, quality)

    def holds_against(self, other: Standing) -> bool:
        """Whether this is as good, but for a difference in quality that means nothing or is paid for."""
        *mine, quality = self.rank
        *theirs, wanted = other.rank
        if mine != theirs:
            return mine > theirs
        return quality >= wanted - _NOISE_DB or (quality >= _ENOUGH_DB and self._saves_minutes(other))

    def serves_as_well(self, other: Standing) -> bool:
        """Whether this is as good, or nothing but quality is lost and enough of that is left."""
        return self.holds_against(other) or (
            self.rank[:-1] == other.rank[:-1] and self.rank[-1] >= _ENOUGH_DB
        )

    def _saves_minutes(self, other: Standing) -> bool:
        if self.verdict is None or other.verdict is None:
            return False
        slow = other.verdict.compile_seconds
        return slow > _SLOW_SECONDS and slow > _MUCH_FASTER * self.verdict.compile_seconds

    def __str__(self) -> str:
        if self.verdict is None:
            return "it does not compile"
        quality = f", {self.htp.sqnr_db:.0f} dB" if self.htp else ""
        verdict = self.verdict
        return f"{len(verdict.cpu_nodes)} nodes on the CPU, {len(verdict.partitions)} partitions{quality}"

    def refused_ops(self) -> frozenset[str] | None:
        """Operators the backend left to the CPU; None when it failed as a whole, and any may be to blame."""
        return None if self.verdict is None else frozenset(node.op for node in self.verdict.cpu_nodes)


def stand(bench: Workbench, model: ir.Model) -> Standing:
    """Ask the backend, then run on its arithmetic."""
    try:
        verdict, htp = bench.on_npu(model)
    except (BackendError, WorkerError) as error:
        return Standing(None, error, None)
    return Standing(verdict, None, htp)


def clean(bench: Workbench, rules: RuleSource, standing: Standing, cures: Collection[str] = ()) -> Standing:
    """The libraries' clean-up and the cures of the compiler's faults, each step proved on its own.

    ``cures``: names of those that the same model needed at another size. They need not win again here, where
    a compile of minutes may be one of seconds: two sizes share their weights only in the same form.
    """

    def change(name: str, step: cleaning.Step) -> Callable[[], bool]:
        return lambda: bench.try_change(name, lambda model: step(model, bench.folder))

    steps = [change(name, step) for name, step in cleaning.STEPS]
    found = rules(Purpose.FAULT)
    agreed = [partial(_apply, bench, type(rule)) for rule in found if rule.name in cures]
    others = [partial(_apply, bench, type(rule)) for rule in found if rule.name not in cures]
    # Asking the backend is what takes long: all at once first, and only if that harms by parts.
    start, done = bench.model, len(bench.attempts)
    after = _together(bench, [*steps, *agreed, *others])
    if after is None or after.holds_against(standing):
        return after or standing
    bench.model = start
    del bench.attempts[done:]
    standing = _settle(bench, standing, steps)
    standing = _settle(bench, standing, agreed, Standing.serves_as_well)
    return _settle(bench, standing, others)


def improve(bench: Workbench, rules: RuleSource, standing: Standing) -> Standing:
    """Rewrite until nothing improves; gives how the model stands at the end."""
    standing = _range_round(bench, rules(Purpose.RANGE), _supported(bench, rules, standing))
    if not standing.refused_ops():
        return standing
    # A form that the NPU takes may have been of no use before its numbers were brought into fp16's range.
    again = _supported(bench, rules, standing)
    return standing if again is standing else _range_round(bench, rules(Purpose.RANGE), again)


def _supported(bench: Workbench, rules: RuleSource, standing: Standing) -> Standing:
    for _ in range(_MOST_ROUNDS):
        better = _support_round(bench, rules(Purpose.SUPPORT), standing)
        if better is None:
            break
        standing = better
    return standing


def _settle(
    bench: Workbench,
    standing: Standing,
    changes: Sequence[Callable[[], bool]],
    is_kept: Callable[[Standing, Standing], bool] = Standing.holds_against,
) -> Standing:
    """Make the changes; if the NPU then does worse, make them again one at a time, without those that harm.

    What is the same on the CPU need not be on the NPU: the compiler's own fusions depend on the form.
    """
    start, done = bench.model, len(bench.attempts)
    together = _together(bench, changes)
    if together is None or is_kept(together, standing):
        return together or standing
    bench.model = start
    del bench.attempts[done:]
    for change in changes:
        model, done = bench.model, len(bench.attempts)
        if not change():
            continue
        after = stand(bench, bench.model)
        if is_kept(after, standing):
            standing = after
        else:
            bench.model = model
            bench.drop_since(done, f"the NPU does worse with it: {after}")
    return standing


def _together(bench: Workbench, changes: Sequence[Callable[[], bool]]) -> Standing | None:
    """How the model stands after all of them; None when none changed anything."""
    made = [change() for change in changes]
    return stand(bench, bench.model) if any(made) else None


def _apply(bench: Workbench, kind: type[Rule]) -> bool:
    """A rule that is wanted whatever the verdict; a fresh one, because a rule remembers what it did."""
    rule = kind()
    model = _rewritten(bench, rule)
    if model is None:
        return False
    _keep(bench, rule, model)
    return True


def _support_round(bench: Workbench, rules: Sequence[Rule], standing: Standing) -> Standing | None:
    """All rules for what the backend refused, together; None when they change or improve nothing."""
    refused = standing.refused_ops()
    wanted = [rule for rule in rules if refused is None or rule.cures & refused]
    before, done = bench.model, len(bench.attempts)
    _apply_all(bench, wanted)
    if bench.model is before:
        return None
    after = stand(bench, bench.model)
    if after.rank > standing.rank:
        return after
    bench.model = before
    bench.drop_since(done, "the backend's verdict did not improve")
    return None


def _apply_all(bench: Workbench, rules: Sequence[Rule]) -> None:
    """Every rule that applies; and again where a body was written out, for it hid the shapes behind it:
    with these folded, it may be known how often the next one runs."""
    for _ in range(_MOST_ROUNDS):
        bodies = _bodies(bench.model)
        for rule in rules:
            model = _rewritten(bench, rule)
            if model is not None:
                _keep(bench, rule, model)
        if _bodies(bench.model) >= bodies:
            break
        bench.try_change("fold what bodies hid", lambda model: cleaning.fold(model, bench.folder))
        # Fresh ones, because a rule remembers what it did.
        rules = [type(rule)() for rule in rules]


def _bodies(model: ir.Model) -> int:
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return sum(node.op_type in _WITH_BODIES for node in nodes)


def _range_round(bench: Workbench, rules: Sequence[Rule], standing: Standing) -> Standing:
    """Cures for fp16, one at a time, each kept only if the NPU's results come closer to the reference."""
    for rule in rules:
        if standing.htp is not None and standing.htp.sqnr_db >= GOOD_DB:
            break
        model = _rewritten(bench, rule)
        if model is None:
            continue
        after = stand(bench, model)
        if after.rank > standing.rank:
            _keep(bench, rule, model)
            standing = after
        else:
            bench.attempts.append(
                Attempt(str(rule.name), False, "fp16 results did not come closer", tuple(rule.applied_to))
            )
    return standing


def _rewritten(bench: Workbench, rule: Rule) -> ir.Model | None:
    """A copy with the rule applied and proved on the CPU; None when it does not apply or does not hold."""
    if rule.cures and rule.cures.isdisjoint(_operators(bench.model)):
        return None
    model = bench.model.clone()
    try:
        applied = apply_rules(model, [rule])
        if not applied:
            return None
        result = bench.equivalence(model)
    except HexportError as error:
        bench.attempts.append(
            Attempt(str(rule.name), False, f"{error.what}: {error.why}", tuple(rule.applied_to))
        )
        return None
    if result.sqnr_db < EQUAL_DB:
        why = f"it changes the result ({result.sqnr_db:.0f} dB)"
        bench.attempts.append(Attempt(str(rule.name), False, why, tuple(rule.applied_to)))
        return None
    return model


def _operators(model: ir.Model) -> set[str]:
    return {node.op_type for node in ir.traversal.RecursiveGraphIterator(model.graph)}


def _keep(bench: Workbench, rule: Rule, model: ir.Model) -> None:
    bench.model = model
    bench.attempts.append(Attempt(str(rule.name), True, nodes=tuple(rule.applied_to)))
