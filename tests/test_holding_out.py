"""Samples to fit with and samples to judge with are never the same, unless there are too few."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from calibration_inputs import ONE, TWO, made, open_for, stacked
from hexport.quantization.holding_out import Part, too_few


def numbers(part: Part) -> list[float]:
    return [float(sample["x"][0, 0]) for sample in part]


@pytest.mark.parametrize(
    ("count", "places"), [(4, [3]), (5, [3]), (8, [3, 7]), (13, [3, 7, 8, 12]), (16, [3, 7, 8, 12])]
)
def test_the_two_parts_are_all_samples_and_share_none(count: int, places: list[int]) -> None:
    samples = made(ONE, count)
    with open_for(ONE, samples) as data:
        fit, held, both = (numbers(Part(data, {"x"}, held=held)) for held in (False, True, None))
        assert not too_few(data)
    assert both == [float(sample["x"][0, 0]) for sample in samples]
    assert sorted(fit + held) == sorted(both)
    assert held == [both[place] for place in places], "one of each four"


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6, 7, 8])
def test_samples_that_come_in_turns_are_not_held_out_of_one_kind(period: int) -> None:
    """Classes, cameras, angles: whatever comes round regularly."""
    with open_for(ONE, made(ONE, 32)) as data:
        part = Part(data, {"x"}, held=True)
        held = [number for number in range(32) if part.has(number)]
    assert len(held) == 8
    assert len({number % period for number in held[:4]}) >= 2
    assert len({number % period for number in held}) >= min(period, 4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_too_few_samples_all_are_in_both(count: int) -> None:
    with open_for(ONE, made(ONE, count)) as data:
        fit, held = (numbers(Part(data, {"x"}, held=held)) for held in (False, True))
        assert too_few(data)
    assert fit == held
    assert len(fit) == count


def test_a_source_that_does_not_know_its_length_is_counted_first() -> None:
    samples = made(ONE, 9)

    def stream() -> Iterator[dict[str, np.ndarray]]:
        yield from samples

    with open_for(ONE, stream()) as data:
        assert len(numbers(Part(data, {"x"}, held=True))) == 3
        assert len(numbers(Part(data, {"x"}, held=False))) == 6
        assert not too_few(data)


def test_only_what_the_model_takes() -> None:
    with open_for(TWO, made(TWO, 4)) as data:
        assert {name for sample in Part(data, {"ids"}) for name in sample} == {"ids"}


def test_a_part_can_be_gone_through_again() -> None:
    with open_for(ONE, stacked_file()) as data:
        part = Part(data, {"x"}, held=False)
        assert numbers(part) == numbers(part)


def stacked_file() -> list[dict[str, np.ndarray]]:
    arrays = stacked(made(ONE, 6))
    return [{"x": row} for row in arrays["x"]]
