"""``hexport convert``: code for the NPU between .pte and EPContext ONNX."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import limits_options, make_limits, output_option, target_option
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("thing", metavar="THING", type=click.Path(path_type=Path))
@output_option("What it becomes: .onnx, .bin or .dlc of a .pte; .pte of the others.")
@click.option("--method", metavar="NAME", help="Of a .pte. [default: forward, or the only one]")
@click.option("--delegate", type=click.IntRange(min=0), metavar="N", help="Of a .pte in several parts.")
@click.option("--graph", metavar="NAME", help="Of a context binary with several.")
@target_option(required=False)
@limits_options
@json_option
def command(
    thing: Path,
    output: Path,
    method: str | None,
    delegate: int | None,
    graph: str | None,
    target: str | None,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Turn a .pte into an ONNX model that calls its context binary, or such a model or binary into a .pte.

    Nothing is compiled: the code for the NPU is the same on both sides. Both are then run on the simulator,
    and must give the same bits (exit 1 if they do not).
    """
    from hexport.executorch.conversion.outcome import show
    from hexport.executorch.conversion.verb import convert

    with waiting(f"converting {thing}"):
        done = convert(
            thing,
            output=output,
            method=method,
            delegate=delegate,
            graph=graph,
            target=target,
            limits=make_limits(timeout, memory_limit),
        )
    if as_json:
        print_json(done.to_json())
    else:
        show(done, console())
    return EXIT_SHORT if done.proof.identical is False else EXIT_OK
