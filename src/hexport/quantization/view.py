"""A quantised model for people: how close, at what cost, what stays float and why, what was tried."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.observe.decibels import decibels
from hexport.observe.verdict_view import show_reasons
from hexport.quantization.curve import on_curve
from hexport.quantization.outcome import Quantization, alone_db

_MOST = 6


def show(result: Quantization, console: Console) -> None:
    """Print it."""
    best = result.best
    console.print(
        f"[bold]{escape(result.model)}[/] for [bold]{result.target.chip}[/] → {escape(result.output)}"
    )
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for label, text in _rows(result):
        table.add_row(label, text)
    console.print(table)
    _show_floats(result, console)
    _show_worst(result, console)
    _show_layers(result, console)
    _show_tried(result, console)
    if best.verdict is not None and best.verdict.cpu_nodes:
        show_reasons(best.verdict, console, show_all=False)
    for warning in result.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    if best.failure:
        console.print(f"[red]✗ it does not run on the NPU[/]: {escape(best.failure)}")
    elif result.is_left_out:
        console.print(
            f"[red]✗ the NPU takes nothing of it[/]: {decibels(best.sqnr_db)} is what the CPU gives"
        )
    elif result.most_drop is not None:
        sign = "[green]✓[/]" if result.met else "[red]✗[/]"
        console.print(f"{sign} the metric loses {best.drop:g}, {result.most_drop:g} is allowed")
    elif result.met:
        asked = "" if result.goal_db is None else f", at least {result.goal_db:g} were asked for"
        where = "NPU" if best.npu is not None else "CPU"
        console.print(f"[green]✓[/] {decibels(best.sqnr_db)} on the {where}{asked}")
    else:
        console.print(
            f"[red]✗ {decibels(best.sqnr_db)}[/], {result.goal_db:g} dB were asked for; "
            "the best model found is written"
        )
    console.print(f"next: hexport check '{escape(result.output)}' --target {result.target.chip}")


def _rows(result: Quantization) -> list[tuple[str, str]]:
    best, verdict = result.best, result.best.verdict
    comparison = best.npu or best.cpu
    worst = comparison.worst
    npu = "not measured" if best.npu is None else decibels(best.npu.lowest_db)
    rows = [
        ("scheme", f"{best.label}, {best.recipe}"),
        ("SQNR on NPU / CPU", f"{npu} / {decibels(best.cpu.lowest_db)}"),
        ("worst output", f"{escape(worst.name)}, {decibels(worst.lowest_db)}" if worst else "–"),
        ("same decision", f"{comparison.agreement}" if comparison.agreement else "–"),
        (
            "MACs in",
            ", ".join(f"{name} {100 * part:.0f} %" for name, part in result.mac_shares.items()) or "–",
        ),
        ("size", f"{result.bytes_before / 1e6:.2f} MB → {result.bytes_after / 1e6:.2f} MB"),
        ("time", f"{result.seconds:.0f} s"),
    ]
    if best.wide is not None:
        all_samples = f"{decibels(best.wide.lowest_db)}, the worst of {best.wide_samples} on the NPU"
        rows.insert(2, ("of all samples", all_samples))
    if verdict is not None:
        where = f"{verdict.nodes.npu} / {verdict.nodes.cpu}, {len(verdict.partitions)} partitions"
        rows.insert(-3, ("nodes on NPU / CPU", where))
    return rows


def _show_floats(result: Quantization, console: Console) -> None:
    if not result.float_nodes:
        return
    share = f"{100 * result.float_mac_share:.1f} % of the MACs"
    where = "fp16 inside" if result.target.float else "in float, which this NPU does not have"
    console.print(f"{where}: {len(result.float_nodes)} nodes, {share}")
    for name, reason in list(result.float_nodes.items())[:_MOST]:
        console.print(f"  {escape(name)}: {escape(reason)}")
    if len(result.float_nodes) > _MOST:
        console.print(f"  and {len(result.float_nodes) - _MOST} more, all in the .quant.json")


def _show_worst(result: Quantization, console: Console) -> None:
    if not result.worst:
        return
    console.print("the layers that harm most, each by itself:")
    for harm in result.worst[:_MOST]:
        more = f" and {len(harm.nodes) - 1} that repeat it" if len(harm.nodes) > 1 else ""
        console.print(f"  {decibels(alone_db(harm))}  {escape(harm.nodes[0])}{more}")


def _show_layers(result: Quantization, console: Console) -> None:
    if not result.layers:
        return
    console.print("layers on the NPU, all that came before included:")
    for layer in result.layers:
        console.print(f"  {decibels(layer.sqnr_db)}  {escape(layer.node)}")


def _show_tried(result: Quantization, console: Console) -> None:
    table = Table("tried", "recipe", "cost", "CPU", "NPU", "", box=None, pad_edge=False)
    for trial, marked in zip(result.tried, on_curve(result.tried), strict=True):
        npu = "fails" if trial.failure else "" if trial.npu_db is None else decibels(trial.npu_db)
        if trial.all_db is not None and not trial.failure:
            npu += f", of all {decibels(trial.all_db)}"
        cpu = decibels(trial.cpu_db)
        if trial.mean_db is not None:
            cpu += f", in the mean of all {decibels(trial.mean_db)}"
        table.add_row(trial.label, trial.recipe, f"{trial.cost:.2g}", cpu, npu, "◂" if marked else "")
    console.print(table)
    if any(on_curve(result.tried)):
        console.print("◂ nothing that was tried is cheaper and as close")
