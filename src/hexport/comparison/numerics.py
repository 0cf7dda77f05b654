"""How exactly each side computes, as rows: against the original, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from hexport.comparison.measuring import Loaded, Measured
from hexport.comparison.rows import Cell, Row, in_a_line
from hexport.comparison.tolerance import Tolerance
from hexport.observe.comparing import Comparison, OutputComparison, compare

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs

_NOT_RUN = "it was not run, because that failed"
_BOTH = "it takes the results of both sides"


def numeric_rows(
    expected: tuple[Outputs, ...], a: Measured, b: Measured, tolerance: Tolerance
) -> Iterator[Row]:
    """Every output by its worst sample; then B's results against A's."""
    names = list(expected[0])
    left, right = _each(expected, a.outputs), _each(expected, b.outputs)
    for name in names:
        label = "SQNR against the original" if len(names) == 1 else f"SQNR of {name}"
        row = Row(f"sqnr:{name}", label, "db", _cell(left.get(name)), _cell(right.get(name)))
        yield _judged(row, tolerance)
    yield Row("sqnr_b_against_a", "SQNR of B against A", "db", Cell(), _between(a.outputs, b.outputs))


def loaded_rows(expected: tuple[Outputs, ...], a: Loaded, b: Loaded, tolerance: Tolerance) -> Iterator[Row]:
    """Whether a package's own binary loads, and how exact it is."""
    row = Row("packaged_loads", "packaged binary loads", "answer", _answer(a), _answer(b))
    lost = row.a.value is True and row.b.value is False
    yield replace(row, worse="it does not load on B") if lost else row
    exact = Row("packaged_sqnr", "  its SQNR", "db", _worst(expected, a), _worst(expected, b))
    yield _judged(exact, tolerance)


def _each(expected: tuple[Outputs, ...], got: tuple[Outputs, ...]) -> dict[str, OutputComparison]:
    return {one.name: one for one in compare(expected, got).outputs} if got else {}


def _cell(found: OutputComparison | None) -> Cell:
    return Cell(note=_NOT_RUN) if found is None else Cell(found.lowest_db, found.note)


def _judged(row: Row, tolerance: Tolerance) -> Row:
    a, b = row.a.number, row.b.number
    if a is None or b is None or not tolerance.too_noisy(a, b):
        return row
    return replace(row, worse=f"more than {tolerance.max_drop_db:g} dB less")


def _between(a: tuple[Outputs, ...], b: tuple[Outputs, ...]) -> Cell:
    if not a or not b:
        return Cell(note=_BOTH)
    found = compare(a, b)
    return Cell(found.lowest_db, _notes(found))


def _notes(found: Comparison) -> str:
    return "; ".join(f"{one.name}: {one.note}" for one in found.outputs if one.note)


def _answer(loaded: Loaded) -> Cell:
    if loaded.untried:
        return Cell(note=f"not tried: {loaded.untried}")
    return Cell(True) if loaded.failure is None else Cell(False, in_a_line(loaded.failure))


def _worst(expected: tuple[Outputs, ...], loaded: Loaded) -> Cell:
    if not loaded.outputs:
        return Cell(note="it was not run")
    found = compare(expected, loaded.outputs)
    return Cell(found.lowest_db, _notes(found))
