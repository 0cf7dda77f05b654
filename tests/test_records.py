"""Records to plain data and back, strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.records import RecordError, from_plain, to_plain


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Outer:
    title: str
    ratio: float
    flags: tuple[bool, ...]
    pair: tuple[int, str]
    inner: Inner
    many: tuple[Inner, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    either: int | str | None = None


inners = st.builds(Inner, st.text(), st.none() | st.integers())
outers = st.builds(
    Outer,
    title=st.text(),
    ratio=st.floats(allow_nan=False),
    flags=st.lists(st.booleans()).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    inner=inners,
    many=st.lists(inners).map(tuple),
    table=st.dictionaries(st.text(), st.integers()),
    either=st.none() | st.integers() | st.text(),
)


@given(outers)
def test_round_trip_through_json(record: Outer) -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(record)))) == record


GOOD = {"title": "t", "ratio": 1.5, "flags": [True], "pair": [1, "a"], "inner": {"name": "n"}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"surplus": 1}, "unknown field 'surplus'"),
        ({"title": 3}, r"Outer\.title: expected str, found int 3"),
        ({"flags": [True, 1]}, r"Outer\.flags\[1\]: expected bool"),
        ({"pair": [1]}, "expected 2 items, found 1"),
        ({"pair": [True, "a"]}, r"Outer\.pair\[0\]: expected int, found bool"),
        ({"inner": {"name": "n", "size": "big"}}, r"Outer\.inner\.size"),
        ({"inner": {}}, "field 'name' is missing"),
        ({"inner": 5}, "expected the fields of Inner"),
        ({"flags": "True"}, "expected a list"),
        ({"table": {"a": "b"}}, r"Outer\.table\.a"),
        ({"table": 1}, "expected a table"),
        ({"either": 1.5}, "expected int.*; or .*expected str"),
    ],
)
def test_wrong_data_names_the_place(change: dict[str, object], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        from_plain(Outer, {**GOOD, **change})


def test_whole_numbers_are_fractions_too() -> None:
    assert from_plain(Outer, {**GOOD, "ratio": 2}).ratio == 2.0
