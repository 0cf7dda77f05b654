"""The comparison of a ``.pte`` for people: beside the quantised program first, then as of any other thing."""

from __future__ import annotations

from math import isfinite

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.executorch.verification.verb import PteMatch
from hexport.observe.decibels import decibels
from hexport.verification import view
from hexport.verification.outcome import Match


def show(match: Match, console: Console) -> None:
    """Print it."""
    if isinstance(match, PteMatch) and match.qdq:
        console.print(f"beside {escape(match.qdq)}, quantised, by torch: what the NPU adds")
        table = Table("output", "SQNR", "largest error", "", box=None, pad_edge=False)
        for output in match.qdq_outputs:
            sign = "[green]✓[/]" if match.rule.met_by(output) else "[red]✗[/]"
            error = f"{output.max_abs_error:.4g}" if isfinite(output.max_abs_error) else "–"
            table.add_row(escape(output.name), decibels(output.sqnr_db), error, sign)
        console.print(table)
        console.print()
    view.show(match, console)
