"""How far rounding trusts its samples is proved on those it has not seen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hexport.quantization.carrying import carried
from hexport.quantization.damping import assumed_damping, proven_damping
from test_rounding import seen

LENGTH, OUTPUTS, HIGHEST = 96, 24, 7
RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(size=(1, OUTPUTS, LENGTH))
SCALES = np.abs(WEIGHTS).max(axis=2) / HIGHEST
CAUSES = RNG.normal(size=(4, LENGTH))


def of_few_causes(count: int) -> np.ndarray:
    """What comes next is a mixture of what was there before."""
    return (RNG.normal(size=(count, 4)) @ CAUSES + 0.02 * RNG.normal(size=(count, LENGTH))).astype(np.float32)


def unrelated(count: int) -> np.ndarray:
    """Fewer than there are inputs: each half has directions that the other knows nothing of."""
    return RNG.normal(size=(count, LENGTH)).astype(np.float32)


def proven(first: np.ndarray, second: np.ndarray) -> float:
    moments = seen(first[None], second[None])
    assert moments.halves is not None
    return proven_damping(WEIGHTS, moments.halves, moments.count)


def test_samples_that_tell_all_are_trusted_however_few() -> None:
    assert proven(of_few_causes(40), of_few_causes(40)) < 0.1 < assumed_damping(LENGTH, 80)


def test_samples_that_tell_nothing_of_each_other_are_not() -> None:
    assert proven(unrelated(12), unrelated(12)) == 2.0


@pytest.mark.parametrize("second", [np.zeros((0, LENGTH), np.float32), np.zeros((12, LENGTH), np.float32)])
def test_without_a_second_half_their_number_decides(second: np.ndarray) -> None:
    first = of_few_causes(40)
    assert proven(first, second) == assumed_damping(LENGTH, len(first) + len(second))


def test_what_was_proven_holds_on_a_third_part() -> None:
    """The rounding by the damping that won, against the others', on vectors that neither half had."""
    halves = of_few_causes(40), of_few_causes(40)
    best, squares = proven(*halves), seen(halves[0][None], halves[1][None]).squares
    unseen = of_few_causes(500)

    def error(damping: float) -> float:
        whole = carried(WEIGHTS, SCALES, squares, damping, HIGHEST)  # type: ignore[arg-type]
        return float(np.mean((unseen @ (whole[0] * SCALES[0][:, None] - WEIGHTS[0]).T) ** 2))

    assert error(best) < 0.7 * error(assumed_damping(LENGTH, 80))


def test_more_vectors_are_trusted_more() -> None:
    by_count = [assumed_damping(LENGTH, count) for count in (0, 100, 1000, 10**6)]
    assert all(one >= other for one, other in pairwise(by_count))
    assert by_count[-1] == pytest.approx(0.1, rel=0.01)
