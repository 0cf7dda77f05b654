"""A preparation for people: before and after, what was done, what was tried in vain, what remains."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.observe.decibels import decibels
from hexport.observe.verdict_view import show_reasons
from hexport.preparation.outcome import Pin, Preparation
from hexport.preparation.pipeline import Standing

_MOST_NODES = 4


def show(result: Preparation, console: Console) -> None:
    """Print it."""
    console.print(
        f"[bold]{escape(result.model)}[/] for [bold]{result.target.chip}[/] → {escape(result.output)}"
        + (f" and {escape(result.data)}" if result.data else "")
    )
    table = Table("", "before", "after", box=None, pad_edge=False)
    for row in zip(_LABELS, _column(result.before), _column(result.after), strict=True):
        table.add_row(*row)
    console.print(table)
    _show_attempts(result, console)
    _show_what_remains(result, console)
    for warning in result.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    console.print(f"next: hexport check '{escape(result.output)}' --target {result.target.chip}")


_LABELS = (
    "nodes on NPU / CPU",
    "partitions",
    "MACs on NPU",
    "SQNR against fp32",
    "same decision",
    "compile time",
)


def _column(standing: Standing) -> list[str]:
    verdict, htp = standing.verdict, standing.htp
    if verdict is None:
        failed = f"fails ({standing.failure.code})" if standing.failure else "–"
        return [failed, *["–"] * (len(_LABELS) - 1)]
    counted = verdict.macs.npu + verdict.macs.cpu
    return [
        f"{verdict.nodes.npu} / {verdict.nodes.cpu}",
        f"{len(verdict.partitions)}",
        f"{verdict.macs.percent:.1f} %" if counted else "none to count",
        decibels(htp.sqnr_db) if htp else "–",
        f"{htp.agreement}" if htp and htp.agreement else "–",
        f"{verdict.compile_seconds:.1f} s",
    ]


def _show_attempts(result: Preparation, console: Console) -> None:
    for attempt in result.attempts:
        where = f": {escape(_named(attempt.nodes))}" if attempt.nodes else ""
        if attempt.kept:
            console.print(f"  [green]✓[/] {escape(attempt.name)}{where}")
        else:
            why = escape(attempt.why.splitlines()[0] if attempt.why else "it did not hold")
            console.print(f"  [dim]– {escape(attempt.name)}{where}: dropped, {why}[/]")


def _show_what_remains(result: Preparation, console: Console) -> None:
    after = result.after
    if after.failure is not None:
        console.print(
            f"[red]✗ it does not compile[/]: {escape(after.failure.what)}\n  {escape(after.failure.why)}"
        )
        if after.failure.next:
            console.print(f"  → {escape(after.failure.next)}")
        if result.repro is not None:
            few = ", ".join(result.repro.nodes[:_MOST_NODES])
            console.print(
                f"  the smallest piece that fails is {len(result.repro.nodes)} of {result.repro.of} nodes "
                f"({escape(few)}): {escape(result.repro.file)}"
            )
    elif after.verdict is not None and after.verdict.cpu_nodes:
        show_reasons(after.verdict, console, show_all=False)
    elif result.full:
        console.print("[green]✓ every node runs on the NPU[/]")
    _show_pins(result.pins, console)


def _show_pins(pins: tuple[Pin, ...], console: Console) -> None:
    """Nodes that rules keep on the CPU, by operator and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for pin in pins:
        groups.setdefault((pin.op, pin.reason), []).append(pin.node)
    if groups:
        console.print("\n[bold]Kept on the CPU on purpose[/]")
    for (op, reason), nodes in groups.items():
        console.print(f"  {escape(op)} {escape(_named(nodes))}: {escape(reason)}")


def _named(nodes: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return ", ".join(nodes[:_MOST_NODES]) + more
