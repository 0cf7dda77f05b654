"""A reduced model for people: how small it became, how it fails, and the command that shows it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from hexport.faultfinding.verb import ReducedModel

_MOST_NODES = 20


def show(result: ReducedModel, console: Console) -> None:
    """Print it."""
    if result.failure is None:
        console.print(f"[green]✓[/] {escape(result.model)} does not fail; nothing was written")
    else:
        _show_piece(result, console)
    for note in result.notes:
        console.print(f"[yellow]![/] {escape(note)}")
    if result.reproduce:
        console.print(f"reproduce: {escape(result.reproduce)}", soft_wrap=True)


def _show_piece(result: ReducedModel, console: Console) -> None:
    assert result.failure is not None
    console.print(
        f"[bold]{escape(result.model)}[/] → {escape(result.output)}: "
        f"[bold]{len(result.nodes)} of {result.of} nodes[/], "
        f"{result.tried} pieces tried in {result.seconds:.0f} s",
        soft_wrap=True,  # or a long path breaks the line anywhere
    )
    for node in result.nodes[:_MOST_NODES]:
        console.print(f"  {escape(node.op)} `{escape(node.name)}`")
    if len(result.nodes) > _MOST_NODES:
        console.print(f"  and {len(result.nodes) - _MOST_NODES} more")
    code = f" {result.failure.code}" if result.failure.code else ""
    console.print(f"[red]✗[/] while {_WHEN[result.failure.stage.value]}{code}: {escape(result.failure.what)}")
    if result.failure.why:
        console.print(f"  {escape(result.failure.why.splitlines()[0])}")
    if result.minimal:
        console.print("  without any one of these nodes it does not fail")
    if result.samples:
        console.print(
            f"  with the inputs in {escape(result.samples)}, which these tensors had in the whole model"
        )


_WHEN = {
    "compiling": "compiling",
    "running": "running",
    "results": "comparing results",
    "command": "asking the command",
}
