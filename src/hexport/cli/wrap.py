"""``hexport wrap``: call a context binary from ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.model_options import limits_options, make_limits
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("binary", metavar="CONTEXT.bin", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="A folder for the models and a copy of the binary.",
)  # fmt: skip
@limits_options
@json_option
def command(binary: Path, output: Path, timeout: float, memory_limit: int | None, as_json: bool) -> int:
    """Make ONNX models that call the graphs of CONTEXT.bin, one a graph.

    CONTEXT.bin is what Qualcomm's own tools write (qnn-context-binary-generator). Quantised inputs and
    outputs stay integers; their scales and zero points are said.
    """
    from hexport.wrapping.verb import wrap
    from hexport.wrapping.wrapped import show

    with waiting(f"wrapping {binary}"):
        result = wrap(binary, output=output, limits=make_limits(timeout, memory_limit))
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK
