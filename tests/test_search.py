"""What the search chooses between: recipes that differ by more than chance, precisions a node can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import onnx_ir as ir
import pytest

from hexport import facts
from hexport.backend.failures import RunFailed
from hexport.observe.comparing import Comparison
from hexport.quantization.candidates import EFFORTS, Candidate
from hexport.quantization.judging import Judge
from hexport.quantization.plan import FLOAT, SCHEMES, Precision, plan_for
from hexport.quantization.raising import better_than
from hexport.quantization.recipe import Recipe
from hexport.quantization.search import Search
from hexport.quantization.workshop import Workshop
from hexport.toolchain import Limits
from quantised_graphs import PLAIN, cnn, normal, workshop
from rule_checks import TARGET
from step_models import graph
from test_reconciling import CPU_DB, FaultyNpu

CHIP = facts.find_target(TARGET)


def searching(shop: Workshop, chip: facts.Soc = CHIP, **effort: Any) -> Search:
    samples = list(shop.data)
    judge = Judge(chip, samples, [], shop.folder, Limits())
    return Search(shop, judge, 20.0, replace(EFFORTS["normal"], **effort), lambda _: None, lambda _: None)


def candidate(shop: Workshop, scheme: str) -> Candidate:
    plan = plan_for(shop.model, SCHEMES[scheme], shop.arch)
    return Candidate(scheme, plan, PLAIN, shop.build(plan, PLAIN), 1.0, compared(0.0))


def compared(lowest_db: float, worst_sample: int = 0) -> Comparison:
    """A comparison of which nothing else matters."""
    figures: Any = {"lowest_db": lowest_db, "sqnr_db": lowest_db, "mean_db": lowest_db}
    return cast(Any, SimpleNamespace(**figures, worst_sample=worst_sample))


@pytest.mark.parametrize(
    ("scheme", "has_float", "expected"),
    [
        ("8a8w", True, [SCHEMES["16a8w"], FLOAT]),
        ("8a8w", False, [SCHEMES["16a8w"]]),
        ("16a8w", True, [SCHEMES["16a16w"], FLOAT]),
        ("16a8w", False, [SCHEMES["16a16w"]]),
        ("16a4w", True, [SCHEMES["16a8w"], SCHEMES["16a16w"], FLOAT]),
        ("16a16w", True, [FLOAT]),
    ],
)
def test_a_node_is_raised_to_more_bits_before_fp16(
    scheme: str, has_float: bool, expected: list[Precision]
) -> None:
    assert better_than(SCHEMES[scheme], has_float=has_float) == expected


def test_from_cheap_to_exact(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    search = searching(shop)
    for names, options in search._options(candidate(shop, "8a8w"), [SCHEMES["16a8w"], FLOAT]).items():
        assert [option.precision.activation for option in options][-1] is None, names
        assert [o.cost for o in options] == sorted(o.cost for o in options), names
        assert options[1].noise.max() < options[0].noise.max(), names
        assert [bool(o.float_macs) for o in options[:2]] == [False, False]


def test_a_precision_that_the_npu_gets_wrong_is_no_option(tmp_path: Path) -> None:
    """A logarithm is right in 8 bits, and garbage in 16."""
    proto = graph([1, 4, 5, 5], "c = Conv x w", "s = Sigmoid c", "y = Log s", w=normal(4, 4, 1, 1))
    shop = workshop(proto, tmp_path)
    options = searching(shop)._options(candidate(shop, "8a8w"), [SCHEMES["16a8w"], FLOAT])
    kinds = {names: [str(o.precision) for o in each] for names, each in options.items()}
    assert kinds["c",] == ["8a8w", "16a8w", "fp16"]
    assert kinds["y",] == ["8a", "fp16"]


def test_only_what_has_weights_gets_wider_ones(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    options = searching(shop)._options(candidate(shop, "16a8w"), [SCHEMES["16a16w"], FLOAT])
    kinds = {str([str(o.precision) for o in each]) for each in options.values()}
    assert kinds == {"['16a8w', '16a16w', 'fp16']", "['16a', 'fp16']"}
    for each in options.values():
        assert [o.cost for o in each] == sorted(o.cost for o in each)
        assert bool(each[1].wide_macs) == (str(each[1].precision) == "16a16w")


@pytest.mark.parametrize(
    ("unseen", "mean", "winner"),
    [
        ([24.0, 24.2, 20.0], [], 0),
        ([24.0, 24.5, 20.0], [24.0, 25.0], 1),
        ([10.0, 24.5, 24.6], [10.0, 24.5, 24.6], 1),
        ([24.0, 20.0, 25.0], [24.0, 25.0], 2),
        ([24.0, 26.0, 28.0], [24.0, 25.0, 24.8], 1),
        ([24.0, 26.0, 28.0], [24.0, 23.0, 24.2], 0),
    ],
    ids=[
        "within chance",
        "more than chance",
        "within chance of one before it",
        "only the last",
        "one before it is better on all",
        "on unseen ones alone",
    ],
)
def test_a_recipe_wins_by_more_than_chance_on_unseen_samples_and_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen: list[float], mean: list[float], winner: int
) -> None:
    recipes = (Recipe(), Recipe(carry_errors=True), Recipe("min-max", carry_errors=True))
    shop = workshop(cnn(), tmp_path)
    search = searching(shop, recipes=recipes)
    left, again = iter(unseen), iter(mean)

    def on_cpu(_: Judge, *models: ir.Model) -> list[Any]:
        return [SimpleNamespace(sqnr_db=next(left), lowest_db=0.0) for _ in models]

    def widely_on_cpu(_: Judge, others: int, *models: ir.Model) -> list[Any]:
        return [SimpleNamespace(mean_db=next(again)) for _ in models]

    monkeypatch.setattr(Judge, "on_cpu", on_cpu)
    monkeypatch.setattr(Judge, "widely_on_cpu", widely_on_cpu)
    plan = plan_for(shop.model, SCHEMES["8a8w"], shop.arch)
    assert search._best_recipe(plan, "8a8w").recipe == recipes[winner]
    assert [t.mean_db for t in search.tried if t.mean_db is not None] == mean
    assert not list(again), "only what wins on unseen samples is compared again"


@pytest.mark.parametrize(
    ("npu_db", "float_share", "cured"),
    [(15.0, 1.0, True), (15.0, 0.1, False), (2.0, 0.1, True)],
    ids=["there is room", "there is none", "otherwise it is of no use"],
)
def test_what_the_npu_misreads_becomes_float_as_far_as_there_is_room(
    tmp_path: Path, npu_db: float, float_share: float, cured: bool
) -> None:
    shop = workshop(cnn(), tmp_path)
    search, said = searching(shop, npu_samples=1), list[str]()
    search.judge, search.say = cast(Judge, FaultyNpu("conv", npu_db=npu_db)), said.append
    search.goal_db = 25.0
    start = replace(candidate(shop, "8a8w"), cpu=compared(CPU_DB))
    found = search.confirm(start, float_share)
    assert (found.plan.precisions["conv"].activation is None) == cured
    assert found.sqnr_db == (CPU_DB if cured else npu_db)
    assert any("too much of the model" in line for line in said) != cured


class WideJudge:
    """A judge who has other samples, on the sixth of which the NPU gives ``wide_db``, or fails."""

    samples: ClassVar = [{}] * 4

    def __init__(self, wide_db: float | None) -> None:
        self.wide_db, self.asked, self.minded = wide_db, 0, list[int]()

    def others(self, count: int) -> tuple[list[Any], list[Any]]:
        return [{}] * count, [{}] * count

    def widely_on_npu(self, _: ir.Model, samples: int, others: int) -> tuple[Any, int]:
        self.asked += 1
        if self.wide_db is None:
            raise RunFailed("it died", why="of many samples")
        return compared(self.wide_db, samples + 5), samples + others

    def mind(self, number: int) -> None:
        self.minded.append(number)


@pytest.mark.parametrize(
    ("held_db", "wide_db", "asked", "enough"),
    [
        (24.0, 21.0, True, True),
        (24.0, 16.1, True, True),
        (24.0, 15.9, True, False),
        (19.0, 30.0, True, False),
        (15.0, 30.0, False, False),
    ],
    ids=["better than asked", "a little worse than unseen ones may be", "too bad", "short before", "far off"],
)
def test_what_seems_enough_is_tried_on_other_samples(
    tmp_path: Path, held_db: float, wide_db: float, asked: bool, enough: bool
) -> None:
    shop = workshop(cnn(), tmp_path)
    search, judge = searching(shop), WideJudge(wide_db)
    search.judge = cast(Judge, judge)
    figure = compared(held_db)
    start = replace(candidate(shop, "8a8w"), cpu=figure, npu=figure)
    found = search._widely(start)
    assert bool(judge.asked) == asked
    assert found.wide_samples == (14 if asked else 0)
    assert search.is_enough(found) == enough
    assert judge.minded == ([5] if asked and not enough else [])
    assert found.sqnr_db == held_db, "the figure is of what was not seen"
    assert found.standing == (asked, min(held_db, wide_db) if asked else held_db)


def test_a_failure_on_other_samples_is_one(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    search = searching(shop)
    search.judge = cast(Judge, WideJudge(None))
    figure = compared(40.0)
    found = search._widely(replace(candidate(shop, "8a8w"), cpu=figure, npu=figure))
    assert "it died" in found.failure
    assert not search.is_enough(found)


class CountingJudge:
    """A judge whose NPU is never good enough, and who counts what is asked of it."""

    def __init__(self, cpu_db: float) -> None:
        self.cpu_db, self.target, self.executor, self.hard = cpu_db, CHIP, None, ([], [])
        self.on_cpu_asked = self.on_npu_asked = 0

    def on_cpu(self, *models: ir.Model) -> list[Any]:
        self.on_cpu_asked += len(models)
        return [compared(self.cpu_db) for _ in models]

    def hard_on_cpu(self, _: ir.Model) -> None:
        return None

    def on_npu(self, _: ir.Model, samples: int) -> tuple[None, Any, None]:
        self.on_npu_asked += samples
        return None, compared(10.0), None


def test_what_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    effort = {"promotions": 0, "reconciliations": 0, "npu_samples": 1}
    search, judge = searching(workshop(cnn(), tmp_path), **effort), CountingJudge(60.0)
    search.judge, search.goal_db = cast(Judge, judge), 30.0
    first = search.within(SCHEMES["16a8w"], "16a8w", 0.1)
    asked = judge.on_cpu_asked
    assert asked == 2, "the recipes that differ at 16 bits"
    assert judge.on_npu_asked == 1, "a second round has nothing new where no node is raised"
    again = search.within(SCHEMES["16a8w"], "16a8w and fp16", 1.0)
    assert judge.on_cpu_asked == asked, "the scheme begins at the same place however much may be fp16"
    assert (first.label, again.label) == ("16a8w", "16a8w and fp16")
    assert again.plan.precisions == first.plan.precisions


def test_what_nodes_harm_is_measured_once_for_all_goals(tmp_path: Path) -> None:
    search, judge = searching(workshop(cnn(), tmp_path), promotions=1), CountingJudge(12.0)
    search.judge, search.effort = cast(Judge, judge), replace(search.effort, npu_samples=0)
    measured = []
    search._options = lambda start, to: measured.append(start.recipe) or {}  # type: ignore[method-assign]
    for search.goal_db in (15.0, 20.0, 25.0):
        search.within(SCHEMES["8a8w"], "8a8w", 0.1)
    assert measured == [Recipe()]
