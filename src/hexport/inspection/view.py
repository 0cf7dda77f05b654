"""An inspection for people: a headline, and a table for each section."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.inspection.section import Section, amount
from hexport.inspection.verb import Inspection

_KINDS = {
    "onnx": "an ONNX model",
    "ep_context": "an ONNX model that calls a context binary",
    "context_binary": "a QNN context binary",
    "package": "a hexport package",
    "packed_package": "a packed hexport package",
    "pte": "an ExecuTorch program",
    "dlc": "a DLC of Qualcomm's converters",
}


def show(found: Inspection, console: Console) -> None:
    """Print it."""
    console.print(f"[bold]{escape(found.path)}[/]: {_KINDS[found.kind]}, {amount(found.bytes)}")
    for section in found.content.sections():
        if section.rows:
            _show(section, console)


def _show(section: Section, console: Console) -> None:
    if section.title:
        console.print(f"\n[bold]{escape(section.title)}[/]")
    table = Table(*section.columns, box=None, pad_edge=False, show_header=bool(section.columns))
    for row in section.rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
