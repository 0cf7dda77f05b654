"""A verdict for people: a headline, a table, the CPU nodes by reason, and what to do about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from hexport.backend.where import Where
from hexport.observe.verdict import CpuNode, Verdict

_MOST_NODES_OF_A_REASON = 3
# The compiler's words, where they do not explain themselves.
_PRECISIONS = {"OTHERS": "other types", "unknown": "not said"}


def show(verdict: Verdict, console: Console, *, require: str | None = None, show_all: bool = False) -> None:
    """Print it."""
    console.print(f"[bold]{escape(verdict.model)}[/] on {_title(verdict.where)}, {verdict.scheme}")
    console.print(_headline(verdict))
    console.print(_table(verdict))
    if verdict.cpu_nodes:
        show_reasons(verdict, console, show_all)
    for warning in verdict.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    if require is not None:
        word = "[green]PASSED[/]" if verdict.meets(require) else "[red]FAILED[/]"
        unknown = verdict.unknown_on_cpu if require != "full" else 0
        doubt = f"; the MACs of {unknown} CPU nodes are not known" if unknown else ""
        console.print(f"{word}: --require {require}{doubt}")


def _title(where: Where) -> str:
    soc = where.soc
    if soc is None:
        return f"[bold]{where.backend.title}[/]"
    sold_as = f", {soc.names[0]}" if soc.names else ""
    return f"[bold]{soc.chip}[/] (SoC {soc.soc_model}, Hexagon v{soc.htp_arch}{sold_as})"


def _headline(verdict: Verdict) -> str:
    title, label, rest = verdict.where.backend.title, verdict.where.backend.label, verdict.where.rest
    if verdict.full and len(verdict.partitions) == 1:
        return f"[green]✓ every node runs on {title}, in one partition[/]"
    if verdict.full:
        return f"[green]✓ every node runs on {title}[/], in {len(verdict.partitions)} partitions"
    if not verdict.nodes.npu:
        return f"[red]✗ nothing runs on {title}[/]"
    count, cutting = len(verdict.cpu_nodes), sum(node.cuts for node in verdict.cpu_nodes)
    if count == 1:
        tail = f", between {label} nodes: it cuts the graph" if cutting else ""
        return f"[yellow]! 1 node runs on {rest}[/]{tail}"
    tail = f", {cutting} of them between {label} nodes: they cut the graph" if cutting else ""
    return f"[yellow]! {count} nodes run on {rest}[/]{tail}"


def _table(verdict: Verdict) -> Table:
    label = verdict.where.backend.label
    rest = "CPU" if verdict.where.soc else "ORT's CPU"
    table = Table("", label, rest, f"share on {label}", box=None, pad_edge=False)
    nodes, macs = verdict.nodes, verdict.macs
    table.add_row("nodes", f"{nodes.npu}", f"{nodes.cpu}", f"{nodes.percent:.1f} %")
    if macs.npu + macs.cpu:
        known = " of those known" if verdict.uncounted else ""
        table.add_row("MACs", _si(macs.npu), _si(macs.cpu), f"{macs.percent:.2f} %{known}")
    for label, value in _details(verdict):
        table.add_row(label, value)
    return table


def _details(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if verdict.uncounted:
        yield "MACs unknown", f"{len(verdict.uncounted)} nodes"
    yield "partitions", f"{len(verdict.partitions)}"
    if verdict.precisions:
        yield (
            "precision",
            ", ".join(
                f"{_PRECISIONS.get(name, name)} ×{count}"
                for name, count in sorted(verdict.precisions.items())
            ),
        )
    if verdict.folded:
        yield "folded away", f"{verdict.folded}"
    if verdict.added:
        yield "added by ORT", f"{verdict.added}"
    if verdict.io_quantization:
        yield "I/O Q/DQ", f"{len(verdict.io_quantization)} on CPU"
    yield "compile time", f"{verdict.compile_seconds:.1f} s"
    if verdict.context_bytes is not None:
        yield "context", _mib(verdict.context_bytes)
    if verdict.vtcm_mb:
        soc = verdict.where.soc
        of = f" of the chip's {soc.vtcm_mb}" if soc and soc.vtcm_mb else ""
        yield "VTCM planned", f"{verdict.vtcm_mb} MB{of}"
    if verdict.ddr is not None:
        ddr = verdict.ddr
        yield "DDR traffic", f"{_mib(ddr.read_total)} read, {_mib(ddr.write_total)} written"
        if ddr.spill or ddr.fill:
            yield "VTCM spills", f"{_mib(ddr.spill)} spilled, {_mib(ddr.fill)} filled"


def show_reasons(verdict: Verdict, console: Console, show_all: bool) -> None:
    """One paragraph for each operator and reason: how many, the backend's words, which, what to do."""
    console.print(f"\n[bold]On {verdict.where.rest}, with the backend's reason[/]")
    inside = Counter(node.inside for node in verdict.cpu_nodes)
    groups: dict[tuple[str, str], list[CpuNode]] = {}
    for node in verdict.cpu_nodes:
        if not node.inside:
            groups.setdefault((node.op, node.reason.replace(node.name, "…")), []).append(node)
    most = None if show_all else _MOST_NODES_OF_A_REASON
    for (op, reason), nodes in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = [_described(node, inside[node.name]) for node in nodes[:most]]
        if most and len(nodes) > most:
            names.append(f"{len(nodes) - most} more (--all)")
        count = f" ×{len(nodes)}" if len(nodes) > 1 else ""
        console.print(f"  [bold]{op}[/]{count} [dim]{nodes[0].cause}[/]")
        for line in (escape(reason), f"[dim]{', '.join(names)}[/]", f"→ {escape(nodes[0].advice)}"):
            console.print(Padding(line, (0, 0, 0, 4)))


def _described(node: CpuNode, in_body: int) -> str:
    cut = " (cuts the graph)" if node.cuts else ""
    return escape(node.name) + cut + (f" and {in_body} nodes in its body" if in_body else "")


def _si(amount: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size:
            return f"{amount / size:.2f} {unit}"
    return str(amount)


def _mib(amount: int) -> str:
    return f"{amount / 2**20:.2f} MiB"
