"""Recorded calls for people: what is in the folder, what it came from, and what it is not."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.faultfinding.call_record import RECORD, CallRecord
from hexport.inspection.section import amount
from hexport.observe.verdict_view import show_reasons


def show(record: CallRecord, console: Console) -> None:
    """Print it."""
    versions, verdict = record.versions, record.verdict
    graphs = "1 graph" if len(record.graphs) == 1 else f"{len(record.graphs)} graphs"
    console.print(
        f"[bold]{escape(verdict.model)}[/] for {record.target.chip} → {escape(record.folder)}: "
        f"{graphs}, {sum(record.calls.values())} calls of QNN SDK {versions.qnn_sdk or '?'}",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    for file in record.files:
        table.add_row(f"  {file.name}", amount(file.bytes))
    table.add_row(f"  {RECORD}", "versions, options, the model's hash, the command, what is on the CPU")
    console.print(table)
    if verdict.cpu_nodes:
        console.print(f"\n[bold]not in the record[/]: {len(verdict.cpu_nodes)} of the model's nodes")
        show_reasons(verdict, console, False)
    for note in record.notes:
        console.print(f"[yellow]![/] {escape(note)}")
    console.print("no results: the Saver backend writes calls and computes nothing")
