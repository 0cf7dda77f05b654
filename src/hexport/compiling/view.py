"""What ``compile`` made, for people: the files, what the binaries say of themselves, what is on the CPU."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.backend.context_binary import ContextBinary, ContextGraph, ContextTensor
from hexport.compiling.outcome import Artefact, Compiled, CompiledModel
from hexport.observe.verdict_view import show_reasons

_MOST_TENSORS = 4


def show(result: Compiled, console: Console, *, require: str | None = None, show_all: bool = False) -> None:
    """Print it."""
    for artefact in result.artefacts:
        _show_artefact(artefact, console)
    _show_cpu_nodes(result, console, show_all)
    for warning in result.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    if result.full:
        console.print("[green]✓ every node runs on the NPU[/]")
    if require is not None:
        word = "[green]PASSED[/]" if result.meets(require) else "[red]FAILED[/]"
        console.print(f"{word}: --require {require}")


def _show_artefact(artefact: Artefact, console: Console) -> None:
    for model in artefact.models:
        inside = "" if artefact.binary else ", the binary inside"
        console.print(
            f"[bold]{escape(model.source)}[/] → {escape(str(model.path))} ({_size(model.size)}{inside})"
        )
    if artefact.binary:
        console.print(f"  binary {escape(artefact.binary.name)}, {_size(artefact.size)}")
    console.print(_table(artefact))


def _table(artefact: Artefact) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    chips = {chip.soc_model: chip.chip for chip in artefact.targets}
    for context in artefact.contexts:
        table.add_row("  read back", _read_back(context, chips))
        if context is artefact.contexts[0]:
            for graph in context.graphs:
                table.add_row("", escape(_graph(graph)))
    for model in artefact.models:
        table.add_row("  placement", escape(_placement(model, len(artefact.models) > 1)))
    table.add_row("  compile time", f"{artefact.seconds:.1f} s")
    return table


def _read_back(context: ContextBinary, chips: dict[int, str]) -> str:
    name = chips.get(context.soc_model or 0, "?")
    graphs = "1 graph" if len(context.graphs) == 1 else f"{len(context.graphs)} graphs"
    vtcm = sorted({graph.vtcm_mb for graph in context.graphs if graph.vtcm_mb})
    spill = max((graph.spill_fill_bytes or 0 for graph in context.graphs), default=0)
    return (
        f"{name} (SoC {context.soc_model}, Hexagon v{context.htp_arch}), QNN SDK {context.sdk}, {graphs}, "
        f"VTCM {' or '.join(map(str, vtcm)) or '?'} MB, spill-fill {_size(spill)}"
    )


def _graph(graph: ContextGraph) -> str:
    return f"{_tensors(graph.inputs)} → {_tensors(graph.outputs)}"


def _tensors(tensors: tuple[ContextTensor, ...]) -> str:
    shown = ", ".join(f"{t.name} {t.dtype}[{','.join(map(str, t.shape))}]" for t in tensors[:_MOST_TENSORS])
    return shown + (f" and {len(tensors) - _MOST_TENSORS} more" if tensors[_MOST_TENSORS:] else "")


def _placement(model: CompiledModel, named: bool) -> str:
    verdict = model.verdict
    nodes = f"{verdict.nodes.npu} nodes on the NPU, {verdict.nodes.cpu} on the CPU"
    io = f", {len(verdict.io_quantization)} Q/DQ at the edges on the CPU" if verdict.io_quantization else ""
    return f"{f'{model.source}: ' if named else ''}{nodes}{io}; {verdict.scheme}"


def _show_cpu_nodes(result: Compiled, console: Console, show_all: bool) -> None:
    """The reasons, once for models whose CPU nodes are the same on every target."""
    said: set[object] = set()
    for artefact in result.artefacts:
        for model in artefact.models:
            key = (model.source, tuple((node.name, node.reason) for node in model.verdict.cpu_nodes))
            if model.verdict.cpu_nodes and key not in said:
                said.add(key)
                chips = ", ".join(chip.chip for chip in artefact.targets)
                console.print(f"\n[bold]{escape(model.source)}[/] on {chips}")
                show_reasons(model.verdict, console, show_all)


def _size(amount: int) -> str:
    return f"{amount} B" if amount < 2**14 else f"{amount / 2**20:.2f} MiB"
