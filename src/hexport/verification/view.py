"""A comparison for people: each output, where it is furthest off, what would pass, and PASSED or FAILED."""

from __future__ import annotations

from math import isfinite

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.observe.decibels import decibels
from hexport.verification.measuring import OutputFinding
from hexport.verification.outcome import Match, Rule


def show(match: Match, console: Console) -> None:
    """Print it."""
    where = " ".join(filter(None, (match.target, match.backend, match.bucket)))
    console.print(f"[bold]{escape(match.subject)}[/] ({escape(match.ran)}, {escape(where)})")
    console.print(
        f"against {escape(match.reference)} on the CPU, {match.samples} samples: {escape(match.inputs)}"
    )
    if match.true_dims:
        sizes = ", ".join(f"{dim}={size}" for dim, size in match.true_dims.items())
        console.print(f"filled up to the bucket from {escape(sizes)}, and cut back")
    console.print(_table(match))
    for output in match.outputs:
        for line in _details(output, match.rule):
            console.print(f"  {escape(line)}")
    for note in match.notes:
        console.print(f"[yellow]![/] {escape(note)}")
    if match.passed:
        console.print(f"[green]PASSED[/]: every output is {escape(str(match.rule))}")
    else:
        names = ", ".join(output.name for output in match.failing)
        console.print(f"[red]FAILED[/]: {escape(names)} not {escape(str(match.rule))}")


def _table(match: Match) -> Table:
    table = Table("output", "SQNR", "largest error", "same decision", "", box=None, pad_edge=False)
    for output in match.outputs:
        sign = "[green]✓[/]" if match.rule.met_by(output) else "[red]✗[/]"
        error = f"{output.max_abs_error:.4g}" if isfinite(output.max_abs_error) else "–"
        same = str(output.agreement) if output.agreement else "–"
        table.add_row(escape(output.name), decibels(output.sqnr_db), error, same, sign)
    return table


def _details(output: OutputFinding, rule: Rule) -> list[str]:
    if output.note:
        return [f"{output.name}: {output.note}"]
    remarks = [output.remark] if output.remark else []
    if output.worst is None:
        return remarks
    worst = output.worst
    return [
        *remarks,
        f"{output.name}: furthest off at sample {worst.sample}, {list(worst.index)}: "
        f"{_shown(worst.expected)} in the reference, {_shown(worst.got)} here; {_would_pass(output, rule)}",
    ]


def _would_pass(output: OutputFinding, rule: Rule) -> str:
    if not isfinite(output.atol_needed):
        return "no tolerance would pass"
    ways = [f"atol {output.atol_needed:g}" + (f" with rtol {rule.rtol:g}" if rule.rtol else "")]
    if isfinite(output.rtol_needed):
        ways.append(f"rtol {output.rtol_needed:g}" + (f" with atol {rule.atol:g}" if rule.atol else ""))
    return f"{' or '.join(ways)} would pass"


def _shown(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
