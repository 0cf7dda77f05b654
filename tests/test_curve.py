"""The curve of cost against accuracy, against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hexport.quantization.candidates import Trial
from hexport.quantization.curve import on_curve

figures = st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0])


def trial(cost: float, cpu_db: float, failure: str = "") -> Trial:
    return Trial("8a8w", "plain", cost, 0, cpu_db, failure=failure)


@given(st.lists(st.builds(trial, figures, figures)))
def test_a_trial_is_on_it_unless_another_is_no_worse_in_both_and_better_in_one(tried: list[Trial]) -> None:
    for one, marked in zip(tried, on_curve(tried), strict=True):
        beaten = any(
            other.cost <= one.cost
            and other.cpu_db >= one.cpu_db
            and (other.cost, other.cpu_db) != (one.cost, one.cpu_db)
            for other in tried
        )
        assert marked is not beaten


def test_what_fails_on_the_npu_is_no_offer_on_the_cpu_either() -> None:
    tried = [trial(1, 40), trial(1, 40, failure="it crashed"), trial(2, 30)]
    assert on_curve(tried) == (False, False, True)
