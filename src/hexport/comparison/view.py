"""A comparison for people: who was compared, the table, footnotes, what is worse, and PASSED or FAILED."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.comparison.outcome import SideBySide
from hexport.comparison.rows import Cell, Row
from hexport.observe.decibels import decibels

_KIB, _MIB = 2**10, 2**20
_STAND_INS = (
    "times are of this machine's compiler, and nothing here tells the device's speed: "
    "DDR traffic and context size stand in for it"
)


def show(found: SideBySide, console: Console) -> None:
    """Print it."""
    where = " ".join(filter(None, (found.target, found.bucket)))
    of = f", {found.compiled}" if found.compiled != found.subject else ""
    console.print(
        f"[bold]{escape(found.subject)}[/]{escape(of)}" + (f" for {escape(where)}" if where else "")
    )
    for name, side in (("A", found.a), ("B", found.b)):
        console.print(f"{name}: {escape(side.backend)} of {escape(side.title)}")
    console.print(
        f"against {escape(found.reference)} on the CPU, {found.samples} samples: {escape(found.inputs)}"
    )
    footnotes: dict[str, int] = {}
    console.print(_table(found, footnotes))
    for text, number in footnotes.items():
        console.print(f"[dim]\\[{number}] {escape(text)}[/]")
    for name, error in found.failures.items():
        console.print(f"[red]{name.upper()} failed[/] with {error.code}; next: {escape(error.next)}")
    for node in found.new_cpu_nodes:
        console.print(
            f"[red]new on the CPU[/] {escape(node.op)} `{escape(node.name)}`: {escape(node.reason)}"
        )
    for note in (*found.notes, _STAND_INS):
        console.print(f"[yellow]![/] {escape(note)}")
    console.print(_verdict(found))


def _table(found: SideBySide, footnotes: dict[str, int]) -> Table:
    table = Table("", "A", "B", "B to A", "", box=None, pad_edge=False)
    for row in found.rows:
        mark = f"[red]✗ {escape(row.worse)}[/]" if row.worse else ""
        cells = [_shown(cell, row, footnotes) for cell in (row.a, row.b)]
        table.add_row(escape(row.label), *cells, _change(row), mark)
    return table


def _shown(cell: Cell, row: Row, footnotes: dict[str, int]) -> str:
    mark = ""
    if cell.note:
        mark = rf" \[{footnotes.setdefault(cell.note, len(footnotes) + 1)}]"
    return f"{escape(_value(cell, row))}{mark}"


def _value(cell: Cell, row: Row) -> str:
    value, number = cell.value, cell.number
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} ×{count}" for name, count in sorted(value.items()))
    if number is None:
        return "–" if cell.note else ""
    match row.unit:
        case "bytes":
            return _size(number)
        case "seconds":
            return f"{number:.1f} s"
        case "percent":
            return f"{number:.2f} %"
        case "db":
            return decibels(number)
    return f"{number:g}"


def _change(row: Row) -> str:
    if row.ratio is not None:
        return f"{row.ratio:.2f}×"
    change = row.difference
    if change is None:
        return ""
    match row.unit:
        case "bytes":
            return f"+{_size(change)}" if change else "="
        case "percent":
            return f"{change:+.2f}" if change else "="
        case "db":
            return f"{change:+.1f} dB"
    return f"{change:+g}" if change else "="


def _size(amount: float) -> str:
    return f"{amount / _MIB:.2f} MiB" if amount >= _MIB else f"{amount / _KIB:.4g} KiB" if amount else "0"


def _verdict(found: SideBySide) -> str:
    if found.passed:
        return f"[green]PASSED[/]: B is not worse than A (worse: {escape(str(found.tolerance))})"
    told = [f"{row.label.strip()} ({row.worse})" for row in found.worse]
    told += [f"{name.upper()} failed" for name in found.failures if not found.worse]
    return f"[red]FAILED[/]: {escape('; '.join(told))}"
