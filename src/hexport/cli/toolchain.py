"""``hexport toolchain``: named environments, each with a compiler version of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.output import console, json_option, print_json, telling

if TYPE_CHECKING:
    from hexport.environments.keeping import Listing
    from hexport.environments.record import Toolchain

_MARKS = {"works": "[green]✓[/]", "absent": "[dim]–[/]", "fails": "[red]✗[/]"}


@click.group(name="toolchain")
def command() -> None:
    """Environments of their own for native code, each with one version of Qualcomm's compiler.

    Verbs that use native code take --toolchain NAME; HEXPORT_TOOLCHAIN and `hexport toolchain use` set what
    applies without it. HEXPORT_DATA moves the folder they are kept in.
    """


@command.command("list")
@json_option
def list_toolchains(as_json: bool) -> int:
    """List the toolchains. Nothing is started: `test` does that."""
    from hexport.environments.keeping import toolchains

    found = toolchains()
    if as_json:
        print_json(found.to_json())
    else:
        _show_list(found)
    return EXIT_OK


@command.command()
@click.argument("specs", nargs=-1, required=True, metavar="PACKAGE[==VERSION]...|NAME")
@click.option("--name", help="What to call it. [default: PACKAGE-VERSION]")
@click.option("--python", metavar="PATH", help="The Python to make it of; with NAME alone, to use as it is.")
@json_option
def add(specs: tuple[str, ...], name: str | None, python: str | None, as_json: bool) -> int:
    """Make an environment with a compiler version, or give a NAME to an existing interpreter.

    onnxruntime-qnn==2.3.0 brings the onnxruntime that goes with it, executorch==1.5.1 the QNN libraries; a
    name alone is the newest that hexport knows of. It counts only after a tiny graph was compiled and run in
    it; when anything fails nothing is left.
    """
    from hexport.environments.adding import add as add_toolchain

    with telling("adding a toolchain") as say:
        added = add_toolchain(*specs, name=name, python=python, say=say)
    if as_json:
        print_json(added.to_json())
        return EXIT_OK
    for note in added.notes:
        click.echo(f"! {note}")
    _show(added.toolchain)
    click.echo("it was there already" if added.already else "added")
    click.echo(f"next: {_next(added.toolchain)}")
    return EXIT_OK


def _next(toolchain: Toolchain) -> str:
    from hexport.environments.requirements import EXECUTORCH

    if EXECUTORCH in toolchain.packages:  # found by itself
        return "hexport build MODULE:FACTORY -o MODEL.pte --format pte --target CHIP"
    return f"hexport check MODEL --target CHIP --toolchain {toolchain.name}"


@command.command()
@click.argument("name")
@json_option
def test(name: str, as_json: bool) -> int:
    """Verify a toolchain again: a tiny graph on every backend. Exits with 1 when it does not work."""
    from hexport.environments.adding import retest

    with telling(f"testing {name}") as say:
        tested = retest(name, say)
    if as_json:
        print_json({"schema_version": 1, "toolchain": tested.to_json()})
    else:
        _show(tested)
        click.echo(f"FAILED: {tested.failure}" if tested.failure else "it works")
    return EXIT_SHORT if tested.failure else EXIT_OK


@command.command()
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> int:
    """Make NAME what verbs use without --toolchain; `this` for hexport's own Python."""
    from hexport.environments.keeping import use as use_toolchain

    chosen = use_toolchain(name)
    if as_json:
        print_json({"schema_version": 1, "default": None if chosen is None else chosen.name})
    elif chosen is None:
        click.echo("native code runs in hexport's own Python")
    else:
        click.echo(f"native code runs in {chosen.name} from now on: {chosen.title}")
        click.echo("every verb that it applies to says so; back: hexport toolchain use this")
    return EXIT_OK


@command.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> int:
    """Remove a toolchain: what hexport made, and of any other interpreter the name alone."""
    from hexport.environments.keeping import remove as remove_toolchain

    with telling(f"removing {name}") as say:
        removed = remove_toolchain(name, say)
    if as_json:
        print_json(removed.to_json())
        return EXIT_OK
    if removed.stays:
        click.echo(f"{name} is forgotten; {removed.stays} is not hexport's, and was not touched")
    else:
        click.echo(f"{name} is removed: {_size(removed.bytes)}")
    if removed.was_default:
        click.echo("! it was the default: native code runs in hexport's own Python from now on")
    return EXIT_OK


def _show_list(found: Listing) -> None:
    from rich.table import Table

    table = Table("", "Name", "What, and where", "Works", "State", "Size", box=None, pad_edge=False)
    table.add_row("" if found.default else "*", *_row(found.this, state="", size=""))
    for one in found.toolchains:
        mark = "*" if one.name == found.default else ""
        table.add_row(mark, *_row(one, state=one.state, size=_size(one.bytes) if one.folder else "not ours"))
    screen = console()
    screen.print(table)
    for note in found.notes:
        screen.print(f"! {note}", soft_wrap=True, markup=False)
    screen.print(f"* is used without --toolchain; folder: {found.folder}", soft_wrap=True, markup=False)


def _row(one: Toolchain, *, state: str, size: str) -> tuple[str, ...]:
    from rich.markup import escape

    works = " ".join(backend.backend for backend in one.backends if backend.state == "works")
    return one.name, f"{escape(one.title)}\n[dim]{escape(one.python)}[/]", works, state, size


def _show(toolchain: Toolchain) -> None:
    from rich.markup import escape

    screen = console()
    screen.print(f"{toolchain.name}: {escape(toolchain.title)} ({toolchain.platform})", soft_wrap=True)
    screen.print(f"  {escape(toolchain.python)}", soft_wrap=True)
    for state in toolchain.backends:
        why = f"  [dim]{escape(state.why)}[/]" if state.why else ""
        screen.print(f"  {_MARKS[state.state]} {state.backend}{why}", soft_wrap=True)


def _size(amount: int) -> str:
    return f"{amount / 1e6:.0f} MB"
