"""What verbs print: one JSON document with ``--json``, tables for people otherwise."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

_A_LINE_EVERY = 30.0
"""Seconds, where stderr is no terminal: whoever reads a log of CI sees that it goes on, and where."""

json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."
)


def print_json(document: Mapping[str, object]) -> None:
    """The only thing on stdout under ``--json``; it names the toolchain that native code ran in, if any."""
    from hexport.toolchain.interpreter import in_force

    chosen = in_force()
    if chosen is not None:
        said = {"name": chosen.name, "python": chosen.python, "packages": dict(chosen.packages)}
        document = {**document, "toolchain": said}
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A line on stderr that counts the seconds, for people at a terminal only."""
    with telling(what):
        yield


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """The same; what is given says what is done at the moment. In a log, that is a line now and then."""
    if not sys.stderr.isatty():
        # What draws is only imported for somebody to see it.
        yield _now_and_then(what)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(what), total=None)
        yield lambda now: progress.update(task, description=escape(f"{what}: {now}"))


def _now_and_then(what: str) -> Callable[[str], None]:
    last = time.monotonic()

    def tell(now: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _A_LINE_EVERY:
            last = time.monotonic()
            click.echo(f"{what}: {now}", err=True)

    return tell


def console() -> Console:
    """A terminal to draw on. Piped output is as wide as it needs to be, so that names are not cut."""
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=160)
