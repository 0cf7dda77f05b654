"""What ``run`` shows: where it ran, what came out, how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from hexport.runtime.description import Description
    from hexport.runtime.running import Ran
    from hexport.runtime.timing import Bench


def show(ran: Ran, output: Path | None, console: Console) -> None:
    """Tables for people."""
    if ran.description is not None:
        _show_places(ran.description, console)
    if ran.outputs:
        table = Table("output", "type", "shape", box=None, header_style="bold")
        for one in ran.outputs:
            table.add_row(escape(one.name), one.dtype, escape(str(list(one.shape))))
        console.print(table)
    if ran.bench is not None:
        _show_bench(ran.bench, console)
    for note in ran.notes:
        console.print(f"note: {escape(note)}")
    if output is not None and ran.outputs:
        count = f" of {ran.samples} samples" if ran.samples > 1 else ""
        console.print(f"the outputs{count} are in {escape(str(output))}")


def _show_places(description: Description, console: Console) -> None:
    where = description.backend + (f", {description.target}" if description.target else "")
    if description.isolated:
        where += (
            f", in a worker of {description.toolchain}" if description.toolchain.python else ", in a worker"
        )
    console.print(f"[bold]{escape(description.package)}[/bold]: {escape(description.scheme)}, on: {where}")
    table = Table(
        "sizes", "runs on", "NPU graphs", "CPU nodes", "served", "file", box=None, header_style="bold"
    )
    for place in description.places:
        served = description.runs.get(place.part, 0)
        nodes = "all" if place.cpu_nodes is None else str(place.cpu_nodes)
        table.add_row(
            escape(place.part), place.backend, str(place.npu_graphs), nodes, str(served), escape(place.file)
        )
    console.print(table)


def _show_bench(bench: Bench, console: Console) -> None:
    table = Table(box=None, header_style="bold")
    for title in ("load", "first", "median", "p90", "p99", f"{bench.threads} threads", "memory"):
        table.add_column(title, justify="right")
    memory = "unknown" if bench.memory_mb is None else f"{bench.memory_mb:.0f} MiB"
    times = (bench.load_ms, bench.first_ms, bench.median_ms, bench.p90_ms, bench.p99_ms)
    table.add_row(*(f"{one:.3g} ms" for one in times), f"{bench.per_second:.4g}/s", memory)
    console.print(table)
    if bench.note:
        console.print(f"note: {escape(bench.note)}")
