"""``hexport cache``: what is kept, and removing it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.output import console, json_option, print_json

if TYPE_CHECKING:
    from hexport.storage.upkeep import Cache


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> int:
    """Show what hexport keeps on this machine: results by step, their size and last use.

    HEXPORT_CACHE moves the folder, HEXPORT_CACHE_GB sets the limit; beyond it what was not used for longest
    goes first. Results are checked before each use, and made again when they are damaged.
    """
    if context.invoked_subcommand is None:
        from hexport.storage.upkeep import cache

        found = cache()
        if as_json:
            print_json(found.to_json())
        else:
            _show(found)
    return EXIT_OK


@command.command()
@click.option("--step", metavar="NAME", help="Only results of this step.")
@click.option("--older-than", type=float, metavar="DAYS", help="Only what was not used for so many days.")
@click.option("--zoo", is_flag=True, help="Also what the zoo has fetched.")
@json_option
@click.pass_context
def clear(
    context: click.Context, step: str | None, older_than: float | None, zoo: bool, as_json: bool
) -> int:
    """Remove results. What some process is making or using stays."""
    from hexport.storage.upkeep import clear as clear_cache

    cleared = clear_cache(step=step, older_than=older_than, zoo=zoo)
    # `hexport cache --json clear` means the same as `hexport cache clear --json`.
    if as_json or (context.parent is not None and context.parent.params.get("as_json")):
        print_json(cleared.to_json())
        return EXIT_OK
    click.echo(f"removed: {cleared.entries} results, {_size(cleared.bytes)}")
    if zoo:
        click.echo(f"removed of the zoo: {_size(cleared.zoo_bytes)}")
    for note in cleared.notes:
        click.echo(f"! {note}")
    return EXIT_OK


def _show(found: Cache) -> None:
    from rich.table import Table

    from hexport.storage.upkeep import iso

    table = Table("step", "results", "size", "last used", box=None, pad_edge=False)
    for step in found.steps:
        table.add_row(step.step, f"{step.entries}", _size(step.bytes), iso(step.last_used))
    screen = console()
    screen.print(table if found.steps else "no results are kept")
    most = _size(found.limit_bytes) if isfinite(found.limit_bytes) else "any size"
    screen.print(f"{_size(found.bytes)} of {most} (HEXPORT_CACHE_GB)")
    if found.being_made:
        screen.print(f"being made at this moment: {found.being_made}")
    if found.staging_bytes:
        screen.print(f"packages that are being built: {_size(found.staging_bytes)}")
    screen.print(f"the zoo: {_size(found.zoo_bytes)}")
    screen.print(f"folder: {found.folder} (HEXPORT_CACHE)", soft_wrap=True, markup=False)


def _size(amount: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= size:
            return f"{amount / size:.2f} {unit}"
    return f"{amount:.0f} bytes"
