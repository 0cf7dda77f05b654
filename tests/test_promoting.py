"""Raising nodes: the goal is met if it can be, within the budget, and with nothing to spare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.quantization.plan import FLOAT, SCHEMES
from hexport.quantization.promoting import Option, Promotion, promote

LOW, BETTER = SCHEMES["8a8w"], SCHEMES["16a8w"]
Options = dict[tuple[str, ...], list[Option]]


def option(noise: float | list[float], cost: float = 1.0, macs: int = 0, level: int = 0) -> Option:
    return Option((LOW, BETTER, FLOAT)[level], np.atleast_1d(np.array(noise, np.float64)), cost, macs)


def left(options: Options, promotions: tuple[Promotion, ...]) -> np.ndarray:
    """The noise that remains."""
    raised = {p.nodes: p.precision for p in promotions}
    chosen = [
        next(o for o in steps if o.precision == raised.get(name, steps[0].precision))
        for name, steps in options.items()
    ]
    result: np.ndarray = np.sum([o.noise for o in chosen], axis=0)
    return result


def float_macs(options: Options, promotions: tuple[Promotion, ...]) -> int:
    return sum(o.float_macs for p in promotions for o in options[p.nodes] if o.precision == p.precision)


@st.composite
def graphs(draw: st.DrawFn) -> Options:
    """Nodes with two or three options, ever less noise at ever higher cost, over two outputs."""
    found: Options = {}
    for number in range(draw(st.integers(1, 8))):
        noise = np.array(draw(st.lists(st.floats(0, 1), min_size=2, max_size=2)))
        macs = draw(st.integers(0, 100))
        steps = [option(list(noise), 1 + macs)]
        if draw(st.booleans()):
            steps.append(option(list(noise * draw(st.floats(0, 1))), 1 + 2 * macs, level=1))
        steps.append(option([0.0, 0.0], 1 + 4 * macs, macs, level=2))
        found[f"n{number}",] = steps
    return found


@given(graphs(), st.floats(1e-3, 4))
def test_the_goal_is_met_when_everything_may_be_float(options: Options, goal: float) -> None:
    promotions = promote(options, goal, np.inf)
    assert np.all(left(options, promotions) <= goal * (1 + 1e-9))


@given(graphs(), st.floats(1e-3, 4), st.floats(0, 300))
def test_the_budget_of_wider_integers_is_kept(options: Options, goal: float, budget: float) -> None:
    wide = {
        name: [
            Option(o.precision, o.noise, o.cost, o.float_macs, 50 if o.precision == BETTER else 0)
            for o in steps
        ]
        for name, steps in options.items()
    }
    promotions = promote(wide, goal, np.inf, budget)
    raised = sum(o.wide_macs for p in promotions for o in wide[p.nodes] if o.precision == p.precision)
    assert raised <= budget
    assert np.all(left(wide, promotions) <= goal * (1 + 1e-9))


@given(graphs(), st.floats(1e-3, 4), st.floats(0, 300))
def test_the_budget_is_kept(options: Options, goal: float, budget: float) -> None:
    promotions = promote(options, goal, budget)
    assert float_macs(options, promotions) <= budget


@given(graphs(), st.floats(1e-3, 4), st.floats(0, 300))
def test_no_node_is_raised_without_need(options: Options, goal: float, budget: float) -> None:
    promotions = promote(options, goal, budget)
    if np.any(left(options, promotions) > goal):
        return
    for dropped in promotions:
        without = tuple(p for p in promotions if p is not dropped)
        assert np.any(left(options, without) > goal * (1 - 1e-9))


@given(graphs(), st.floats(1e-3, 4), st.floats(0, 300))
def test_when_it_ends_early_nothing_more_would_help(options: Options, goal: float, budget: float) -> None:
    promotions = promote(options, goal, budget)
    over = np.maximum(left(options, promotions) - goal, 0)
    if not over.any():
        return
    raised = {p.nodes for p in promotions}
    room = budget - float_macs(options, promotions)
    able = [
        steps[0].noise
        for name, steps in options.items()
        if name not in raised and steps[-1].float_macs <= room
    ]
    # All that could still be raised would spare a fiftieth of what is too much.
    spared = [np.sum(over - np.maximum(over - noise, 0)) for noise in able]
    assert sum(spared) <= 0.021 * over.sum() + 1e-12


def test_nothing_to_do() -> None:
    assert promote({}, 0.1, np.inf) == ()
    assert promote({("a",): [option(0.05), option(0.0, level=2)]}, 0.1, np.inf) == ()


def test_the_noise_that_costs_least_to_spare_goes_first() -> None:
    options: Options = {
        ("heavy",): [option(0.5, 1), option(0.0, 1001, 1000, level=2)],
        ("light",): [option(0.5, 1), option(0.0, 11, 10, level=2)],
    }
    (only,) = promote(options, 0.6, np.inf)
    assert (only.nodes, only.precision, only.noise_before) == (("light",), FLOAT, 0.5)


def test_what_a_large_step_makes_needless_is_taken_back() -> None:
    """The cheap one goes first, is not enough, and the dear one would have done alone."""
    options: Options = {
        ("cheap",): [option(0.2), option(0.0, 3, level=2)],
        ("dear",): [option(1.0), option(0.0, 1000, level=2)],
    }
    (only,) = promote(options, 0.3, np.inf)
    assert only.nodes == ("dear",)


def test_a_node_goes_no_higher_than_it_must() -> None:
    """First it is raised to fp16; once the other one is raised as well, 16 bits are enough for it."""
    options: Options = {
        ("a",): [option(1.0, 1), option(0.2, 500, level=1), option(0.0, 501, level=2)],
        ("b",): [option(0.5, 1), option(0.0, 10_000, level=2)],
    }
    assert [(p.nodes, p.precision) for p in promote(options, 0.25, np.inf)] == [
        (("a",), BETTER),
        (("b",), FLOAT),
    ]


def test_only_outputs_that_are_too_noisy_count() -> None:
    """The node with the most noise disturbs an output that is good enough."""
    options: Options = {
        ("elsewhere",): [option([0.0, 0.9]), option([0.0, 0.0], 2, level=2)],
        ("here",): [option([0.5, 0.0]), option([0.0, 0.0], 2, level=2)],
    }
    assert [p.nodes for p in promote(options, 0.95, np.inf)] == []
    options["here",][0] = option([1.0, 0.0])
    assert [p.nodes for p in promote(options, 0.95, np.inf)] == [("here",)]


def test_short_of_the_goal_nothing_is_raised_that_spares_nothing() -> None:
    options: Options = {
        ("large",): [option(1.0), option(0.0, 9, 100, level=2)],
        ("loud",): [option(0.5), option(0.0, 9, 0, level=2)],
        ("quiet",): [option(1e-6), option(0.0, 9, 0, level=2)],
    }
    assert [p.nodes for p in promote(options, 0.1, 50)] == [("loud",)]


@pytest.mark.parametrize("budget", [0, 99])
def test_beyond_the_budget_the_rest_is_still_raised(budget: int) -> None:
    options: Options = {
        ("large",): [option(1.0), option(0.0, 9, 100, level=2)],
        ("free",): [option(0.5), option(0.0, 9, 0, level=2)],
    }
    assert [p.nodes for p in promote(options, 0.1, budget)] == [("free",)]
