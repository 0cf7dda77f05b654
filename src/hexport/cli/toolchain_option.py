"""``--toolchain NAME``, for verbs that use native code: in which interpreter it runs is said, always."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


def toolchain_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run the verb in the toolchain that was asked for, or in the default one."""

    @functools.wraps(function)
    def in_toolchain(*arguments: Any, toolchain: str | None, **named: Any) -> Any:
        from hexport.environments.choosing import choose
        from hexport.toolchain import using

        choice = choose(toolchain)
        if choice is None:
            return function(*arguments, **named)
        _refuse_this_process(named)
        click.echo(str(choice), err=True)
        with using(choice.toolchain.interpreter):
            return function(*arguments, **named)

    return click.option(
        "--toolchain",
        metavar="NAME",
        help="Run native code in this toolchain (`hexport toolchain list`); `this`: in hexport's own Python.",
    )(in_toolchain)


def _refuse_this_process(named: dict[str, Any]) -> None:
    if named.get("in_process"):
        raise click.UsageError(
            "--in-process runs native code in hexport's own Python, and a toolchain in another: "
            "leave it out, or give --toolchain this"
        )
