"""A built ``.pte`` for people: what was made, and how close it is to PyTorch."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from hexport.executorch.building.outcome import PteBuilt
from hexport.executorch.lowering import view
from hexport.observe.decibels import USABLE_DB, decibels


def show(built: PteBuilt, console: Console) -> None:
    """Print it."""
    view.show(built.lowered, console)
    for scheme, found in built.tried.items():
        console.print(f"{scheme}: {decibels(found)}")
    for name, one in built.verified.items():
        sign = "[green]✓[/]" if built.goal.met_by(one) else "[red]✗[/]"
        lost = "" if one.drop is None else f", the metric lost {one.drop:.4g}"
        asked = f" (asked for: {built.goal})" if str(built.goal) else ""
        console.print(
            f"{sign} {escape(name)} on the simulator, beside PyTorch: {decibels(one.sqnr_db)}{lost}{asked}, "
            f"on {escape(one.origin)}"
        )
        if one.sqnr_db < USABLE_DB:
            console.print(
                f"! less than {USABLE_DB:g} dB is no rounding: an operator computes wrongly, or the samples "
                "of the ranges are unlike these; --precision module:NAME=cpu finds out where"
            )
        for output in one.outputs:
            if output.note or output.remark:
                console.print(f"  {escape(output.name)}: {escape(output.note or output.remark)}")
    if not built.verified and str(built.goal):
        console.print(f"[red]✗[/] nothing shows that {built.goal} are reached: it cannot run here")
    steps = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in built.lowered.steps.items())
    console.print(f"{built.seconds:.0f} s" + (f" ({steps})" if steps else ""))
    if built.verified:
        made = escape(str(built.lowered.output))
        console.print(f"next: hexport run '{made}' --inputs INPUTS.npz --output OUTPUTS.npz")
