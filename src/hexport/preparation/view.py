"""A preparation for people: before and after, what was done, what was tried in vain, what remains."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.observe.verdict_view import show_reasons
from hexport.preparation.pipeline import Standing
from hexport.preparation.verb import Preparation

_MOST_NODES = 4


def show(result: Preparation, console: Console) -> None:
    """Print it."""
    console.print(
        f"[bold]{escape(result.model)}[/] for [bold]{result.target.chip}[/] → {escape(result.output)}"
    )
    table = Table("", "before", "after", box=None, pad_edge=False)
    for row in zip(_LABELS, _column(result.before), _column(result.after), strict=True):
        table.add_row(*row)
    console.print(table)
    _show_attempts(result, console)
    after = result.after
    if after.failure is not None:
        console.print(
            f"[red]✗ it does not compile[/]: {escape(after.failure.what)}\n  {escape(after.failure.why)}"
        )
    elif after.verdict is not None and after.verdict.cpu_nodes:
        show_reasons(after.verdict, console, show_all=False)
    else:
        console.print("[green]✓ every node runs on the NPU[/]")
    for warning in result.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    console.print(f"next: hexport check '{escape(result.output)}' --target {result.target.chip}")


_LABELS = ("nodes on NPU / CPU", "partitions", "MACs on NPU", "SQNR against fp32", "compile time")


def _column(standing: Standing) -> list[str]:
    verdict = standing.verdict
    if verdict is None:
        return [f"fails ({standing.failure.code})" if standing.failure else "–", "–", "–", "–", "–"]
    quality = f"{standing.htp.sqnr_db:.1f} dB" if standing.htp else "–"
    return [
        f"{verdict.nodes.npu} / {verdict.nodes.cpu}",
        f"{len(verdict.partitions)}",
        f"{verdict.macs.percent:.1f} %",
        quality,
        f"{verdict.compile_seconds:.1f} s",
    ]


def _show_attempts(result: Preparation, console: Console) -> None:
    for attempt in result.attempts:
        shown = ", ".join(attempt.nodes[:_MOST_NODES])
        more = f" and {len(attempt.nodes) - _MOST_NODES} more" if len(attempt.nodes) > _MOST_NODES else ""
        where = f": {escape(shown)}{more}" if attempt.nodes else ""
        if attempt.kept:
            console.print(f"  [green]✓[/] {escape(attempt.name)}{where}")
        else:
            why = escape(attempt.why.splitlines()[0])
            console.print(f"  [dim]– {escape(attempt.name)}{where}: dropped, {why}[/]")
