"""``hexport compare``: one model through two compilers or backends."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    bucket_option,
    dims_option,
    input_shapes_option,
    inputs_option,
    make_limits,
    samples_option,
    target_option,
    worker_limits_options,
)
from hexport.cli.output import console, json_option, print_json, telling


@click.command()
@click.argument("thing", metavar="MODEL|PKG")
@click.option(
    "--toolchain",
    "toolchains",
    multiple=True,
    metavar="NAME",
    help="Side A, then side B (`hexport toolchain list`); `this`: hexport's own Python.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Side A, then side B: htp, qnn-cpu, gpu, or cpu for ONNX Runtime's own.",
)
@target_option(required=False)
@click.option(
    "--reference", metavar="MODEL", help="The original. [default: MODEL, or the package's CPU model]"
)
@inputs_option
@click.option(
    "--max-more",
    default="10%",
    show_default=True,
    metavar="PERCENT",
    help="Of DDR traffic and context size; beyond it B is worse.",
)
@click.option(
    "--max-drop-db",
    type=float,
    default=3.0,
    show_default=True,
    metavar="DB",
    help="Of each output's SQNR; beyond it B is worse.",
)
@bucket_option
@samples_option
@dims_option
@input_shapes_option
@worker_limits_options
@json_option
def command(
    thing: str,
    toolchains: tuple[str, ...],
    backends: tuple[str, ...],
    target: str | None,
    reference: str | None,
    inputs: Path | None,
    max_more: str,
    max_drop_db: float,
    bucket: str | None,
    samples: int | None,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Take MODEL or PKG through two compilers or backends: exit 0 when B is not worse than A, 1 when it is.

    Two --toolchain, two --backend, or both in order make the sides. Worse is a new node on the CPU, another
    partition, more DDR traffic or a larger context than --max-more allows, fewer decibels than --max-drop-db
    allows, or a side that fails.
    """
    from hexport.comparison.verb import compare
    from hexport.comparison.view import show
    from hexport.environments.choosing import choose

    if not toolchains and (choice := choose(None)) is not None:
        click.echo(str(choice), err=True)
        toolchains = (choice.toolchain.name,)
    with telling(f"comparing {thing}") as say:
        found = compare(
            thing,
            toolchains=toolchains,
            backends=backends,
            target=target,
            reference=reference,
            inputs=inputs,
            max_more=max_more,
            max_drop_db=max_drop_db,
            bucket=bucket,
            samples=samples,
            dims=dims,
            input_shapes=input_shapes,
            limits=make_limits(timeout, memory_limit),
            say=say,
        )
    if as_json:
        print_json(found.to_json())
    else:
        show(found, console())
    return EXIT_OK if found.passed else EXIT_SHORT
