"""``hexport inspect``: what is inside of a file or folder."""

from __future__ import annotations

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.model_options import limits_options, make_limits
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("thing")
@limits_options
@json_option
def command(thing: str, timeout: float, memory_limit: int | None, as_json: bool) -> int:
    """Tell what THING is, and what is inside.

    THING is an ONNX model (or zoo:NAME), an EPContext model, a context binary (.bin), a package or a packed
    one, an ExecuTorch program (.pte) or a DLC. What it is, is told by its content and not by its name.
    """
    from hexport.inspection.verb import inspect
    from hexport.inspection.view import show

    with waiting(f"looking into {thing}"):
        found = inspect(thing, limits=make_limits(timeout, memory_limit))
    if as_json:
        print_json(found.to_json())
    else:
        show(found, console())
    return EXIT_OK
