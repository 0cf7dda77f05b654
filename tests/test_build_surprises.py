"""What a build says when verifying shows much less than quantising did."""

from __future__ import annotations

from dataclasses import replace

from hexport.building.surprises import surprises
from hexport.packaging.manifest import OutputFigure, Verification


def verified(*figures: float | str, passed: bool = True, dims: dict[str, int] | None = None) -> Verification:
    outputs = tuple(OutputFigure(f"y{number}", figure) for number, figure in enumerate(figures))
    return Verification("SM8650", "whole", "simulator", 2, None, passed, outputs, dims or {})


def test_far_below_is_said() -> None:
    (said,) = surprises([verified("exact", 41.0, 13.1)], {"whole/SM8650": {"sqnr_db": 44.4}})
    assert "13.1 dB" in said
    assert "44.4 dB" in said
    assert "--min-sqnr" in said


def test_what_is_expected_or_said_elsewhere_is_not() -> None:
    reports = {"whole/SM8650": {"sqnr_db": 44.4}}
    assert not surprises([verified(38.0)], reports)
    assert not surprises([verified("exact")], reports)
    assert not surprises([replace(verified(25.0), min_sqnr_db=20.0)], reports), "as was asked for"
    assert not surprises([verified(5.0, passed=False)], reports), "that is a shortfall"
    assert not surprises([verified(13.0, dims={"time": 3})], reports), "other sizes are another question"
    assert not surprises([verified(13.0)], {"whole/SM8650": {"sqnr_db": "exact"}})
    assert not surprises([verified(13.0)], {"whole/SM8650": {"after": {}}}), "a model in float"
