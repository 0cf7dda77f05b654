"""How near a candidate must come, in decibels and in noise: both say the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.quantization.candidates import Candidate
from hexport.quantization.goal import UNSEEN_DB, missing_db, noise_allowed

figures = st.floats(-10, 80)


def candidate(unseen_db: float, hard_db: float | None) -> Candidate:
    hard = None if hard_db is None else SimpleNamespace(lowest_db=hard_db)
    return cast(Any, SimpleNamespace(cpu=SimpleNamespace(lowest_db=unseen_db), hard=hard))


@pytest.mark.parametrize(
    ("unseen_db", "hard_db", "missing"),
    [(36.0, None, -6.0), (28.0, None, 2.0), (36.0, 24.0, 2.0), (36.0, 29.0, -3.0), (27.0, 25.0, 3.0)],
)
def test_a_hard_sample_may_be_as_much_below_as_an_unseen_one_must_be_above(
    unseen_db: float, hard_db: float | None, missing: float
) -> None:
    assert UNSEEN_DB == 4.0
    assert missing_db(candidate(unseen_db, hard_db), 30.0) == pytest.approx(missing)


@given(figures, figures, figures, st.integers(1, 3))
def test_noise_that_is_allowed_is_that_of_which_nothing_is_missing(
    wanted: float, unseen: float, hard: float, outputs: int
) -> None:
    noise = np.repeat(10 ** (-np.array([unseen, hard]) / 10), outputs)
    allowed = noise_allowed(wanted, outputs, 1)
    missing = missing_db(candidate(unseen, hard), wanted)
    if abs(missing) > 1e-6:
        assert bool(np.all(noise <= allowed)) == (missing <= 0)
    assert 10 * np.log10(np.max(noise / allowed)) == pytest.approx(missing, abs=1e-6)
