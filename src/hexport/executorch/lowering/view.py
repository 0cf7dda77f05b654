"""A lowered program for people."""

from __future__ import annotations

from collections import Counter
from math import isinf

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.pte.partition import CpuNode, Partition
from hexport.executorch.pte.sidecar import Method

_MOST_ROWS = 12


def show(lowered: Lowered, console: Console) -> None:
    """What was made, who runs what of it, and what to know."""
    about = lowered.description
    console.print(f"{escape(str(lowered.output))}: {about.target}, {about.scheme}, {_size(lowered.bytes)}")
    if not lowered.compiled:
        _show_notes(lowered, console)
        return
    table = Table("method", "NPU parts", "on the NPU", "of the MACs", "on the CPU", box=None, pad_edge=False)
    for method in about.methods:
        partition = method.partition
        table.add_row(
            escape(method.name),
            str(len(partition.delegates)),
            f"{partition.delegated_nodes} of {partition.nodes} operators",
            f"{partition.mac_share:.1%}",
            _cpu_share(partition),
        )
    console.print(table)
    for method in about.methods:
        _show_cpu(method, console)
    for name, decibels in lowered.quantised_db.items():
        if decibels is not None:
            said = "exact" if isinf(decibels) else f"{decibels:.1f} dB"
            console.print(
                f"{escape(name)}: quantised {said} on samples that gave no range (by torch, on the CPU)"
            )
    _show_notes(lowered, console)


def _show_cpu(method: Method, console: Console) -> None:
    """One row for operators that stay for one reason in one module."""
    nodes = method.partition.cpu
    if not nodes:
        return
    table = Table("operator", "count", "module", "why", box=None, pad_edge=False)
    groups = Counter((one.op, one.module, one.reason) for one in nodes)
    first: dict[tuple[str, str, str], CpuNode] = {}
    for one in nodes:
        first.setdefault((one.op, one.module, one.reason), one)
    for key, count in groups.most_common(_MOST_ROWS):
        one = first[key]
        why = one.reason + (f" ({one.source})" if one.source else "")
        table.add_row(escape(one.op), str(count), escape(one.module), escape(why))
    console.print(table)
    for advice in dict.fromkeys(one.advice for one in nodes if one.advice):
        console.print(f"→ {escape(advice)}")


def _show_notes(lowered: Lowered, console: Console) -> None:
    for note in lowered.notes:
        console.print(f"! {escape(note)}")


def _cpu_share(partition: Partition) -> str:
    return f"{len(partition.cpu)} operators" if partition.cpu else "nothing"


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
