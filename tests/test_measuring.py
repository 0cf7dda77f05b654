"""How far outputs are apart: the worst element, and tolerances that really pass."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hexport.errors import UsageError
from hexport.verification.measuring import OutputFinding, find
from hexport.verification.outcome import USELESS_DB, make_rule

NUMBERS = hnp.arrays(np.float32, (2, 3), elements=st.floats(-100, 100, width=32))


def one(old: object, new: object, *, rtol: float = 0.0, atol: float = 0.0) -> OutputFinding:
    (found,) = find([{"y": np.asarray(old)}], [{"y": np.asarray(new)}], rtol=rtol, atol=atol)
    return found


def test_the_worst_element_is_found_with_its_place() -> None:
    rng = np.random.default_rng(0)
    old = [{"y": rng.normal(size=(2, 3)).astype(np.float32)} for _ in range(3)]
    new = [{"y": sample["y"].copy()} for sample in old]
    new[2]["y"][1, 2] += 0.5
    new[0]["y"][0, 0] += 0.25
    (found,) = find(old, new)
    assert found.worst is not None
    assert (found.worst.sample, found.worst.index) == (2, (1, 2))
    assert found.worst.expected == float(old[2]["y"][1, 2])
    assert found.worst.got == float(new[2]["y"][1, 2])
    assert found.max_abs_error == pytest.approx(0.5)
    noise = old[2]["y"].astype(np.float64) - new[2]["y"]
    worst_db = 10 * math.log10(float(np.sum(old[2]["y"].astype(np.float64) ** 2)) / float(np.sum(noise**2)))
    first = np.sum((old[0]["y"].astype(np.float64) - new[0]["y"]) ** 2)
    first_db = 10 * math.log10(float(np.sum(old[0]["y"].astype(np.float64) ** 2) / first))
    assert found.sqnr_db == pytest.approx(min(worst_db, first_db))


@given(NUMBERS, NUMBERS, st.sampled_from([0.0, 1e-3, 0.1]), st.sampled_from([0.0, 1e-3, 0.1]))
def test_the_tolerances_that_are_said_pass_and_little_less_does_not(
    old: np.ndarray, new: np.ndarray, rtol: float, atol: float
) -> None:
    found = one(old, new, rtol=rtol, atol=atol)
    assert one(old, new, rtol=rtol, atol=found.atol_needed).within
    if found.atol_needed > 0:
        assert not one(old, new, rtol=rtol, atol=0.98 * found.atol_needed).within
    if math.isfinite(found.rtol_needed):
        assert one(old, new, rtol=found.rtol_needed, atol=atol).within
        if found.rtol_needed > 1e-6:
            assert not one(old, new, rtol=0.98 * found.rtol_needed, atol=atol).within
    else:
        assert (old == 0).any()
    assert found.within == bool(
        (np.abs(new.astype(float) - old) <= atol + rtol * np.abs(old.astype(float))).all()
    )


def test_what_is_no_number() -> None:
    lost = one([1.0, 2.0], [1.0, np.nan])
    assert (lost.max_abs_error, lost.within, lost.worst.index) == (math.inf, False, (1,))
    assert lost.worst.got == "nan"
    assert not one([1.0], [np.inf], atol=1e30).within
    # Where the reference has none, nothing can be wrong.
    assert one([np.nan, -np.inf, 1.0], [0.0, -65504.0, 1.0]).within
    for found in (lost, one([1.0], [np.inf])):
        json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ([True, False], [True, True], 1.0),
        ([7, 8], [7, 5], 3.0),
        (np.array(3, np.int64), np.array(1, np.int64), 2.0),
    ],
)
def test_whole_numbers_and_truths(old: object, new: object, error: float) -> None:
    found = one(old, new)
    assert (found.max_abs_error, found.within) == (error, False)
    json.dumps(found.to_json(), allow_nan=False)


def test_what_cannot_be_compared_never_passes() -> None:
    rule = make_rule(None, 1e9, 1e9, otherwise=None)
    other_shape, missing = (
        one(np.zeros((1, 2)), np.zeros((1, 3))),
        find([{"y": np.zeros(1)}], [{"z": np.zeros(1)}])[0],
    )
    assert "became" in other_shape.note
    assert "missing" in missing.note
    assert not rule.met_by(other_shape)
    assert not rule.met_by(missing)


def test_nothing_at_all_is_equal() -> None:
    found = one(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert (found.within, found.sqnr_db, found.worst) == (True, math.inf, None)


def test_rules() -> None:
    close = one([1.0, 2.0], [1.0, 2.02])
    assert make_rule(30, None, None, otherwise=None).met_by(close) == (close.sqnr_db >= 30)
    assert make_rule(None, None, None, otherwise=None).min_sqnr_db == USELESS_DB
    assert make_rule(None, None, None, otherwise=33).min_sqnr_db == 33
    assert make_rule(None, 0.1, None, otherwise=33).min_sqnr_db is None
    loose = one([1.0, 2.0], [1.0, 2.02], rtol=0.02)
    assert make_rule(None, 0.02, None, otherwise=None).met_by(loose)
    assert not make_rule(1000, 0.02, None, otherwise=None).met_by(loose)


@pytest.mark.parametrize(
    "wrong",
    [(float("nan"), None, None), (None, -1.0, None), (None, None, float("inf")), (None, float("nan"), None)],
)
def test_wishes_that_are_none(wrong: tuple[float | None, float | None, float | None]) -> None:
    with pytest.raises(UsageError):
        make_rule(*wrong, otherwise=None)
