"""What ``compile --format dlc`` made, for people: the files, what is in them, and what is not."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.compiling.dlc_outcome import DlcFile, Exported, ExportedModel
from hexport.inspection.section import TensorInfo, amount
from hexport.observe.verdict_view import show_reasons

_MOST_TENSORS = 4


def show(result: Exported, console: Console, *, require: str | None = None, show_all: bool = False) -> None:
    """Print it."""
    for model in result.models:
        _show_model(model, console)
    for model in result.models:
        if model.verdict.cpu_nodes:
            console.print(
                f"\n[bold]{escape(model.source)}[/]: what is in no DLC, and has to be computed elsewhere"
            )
            show_reasons(model.verdict, console, show_all)
    for warning in result.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    if result.full:
        console.print("[green]✓ every compute node is in a DLC[/]")
    if require is not None:
        word = "[green]PASSED[/]" if result.meets(require) else "[red]FAILED[/]"
        console.print(f"{word}: --require {require}")


def _show_model(model: ExportedModel, console: Console) -> None:
    verdict = model.verdict
    for file in model.files:
        console.print(
            f"[bold]{escape(model.source)}[/] → {escape(str(file.path))} ({amount(file.size)})",
            soft_wrap=True,
        )
        console.print(_table(file))
    nodes = f"{verdict.nodes.npu} nodes that the NPU of {verdict.target.chip} takes, {verdict.nodes.cpu} not"
    console.print(f"  {nodes}; {verdict.scheme}")


def _table(file: DlcFile) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    weights = amount(file.content.weight_bytes)
    count = sum(file.graph.operators.values())
    operators = "1 operator" if count == 1 else f"{count} operators"
    table.add_row("  read back", f"QNN SDK {file.content.sdk}, {operators}, weights {weights}")
    table.add_row("", escape(f"{_tensors(file.graph.inputs)} → {_tensors(file.graph.outputs)}"))
    return table


def _tensors(tensors: tuple[TensorInfo, ...]) -> str:
    shown = ", ".join(" ".join(tensor.row[:2]) for tensor in tensors[:_MOST_TENSORS])
    return shown + (f" and {len(tensors) - _MOST_TENSORS} more" if tensors[_MOST_TENSORS:] else "")
