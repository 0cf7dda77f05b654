"""``hexport prepare``: make a model run whole on the NPU."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.model_options import (
    dims_option,
    freeze_option,
    input_shapes_option,
    limits_options,
    make_limits,
)
from hexport.cli.output import console, json_option, print_json, waiting
from hexport.errors import MissingDependency


@click.command()
@click.argument("model")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The prepared model.",
)
@click.option("--target", required=True, help="The chip: SM8650, 57 or 'snapdragon 8 gen 3'.")
@dims_option
@input_shapes_option
@freeze_option
@click.option(
    "--calib",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Real inputs to prove changes on: an array an input, samples first.",
)
@click.option("--rules", metavar="A,B|-C", help="Only these rules, or all but those with a minus.")
@limits_options
@json_option
def command(
    model: str,
    output: Path,
    target: str,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    freeze: dict[str, str],
    calib: Path | None,
    rules: str | None,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Rewrite MODEL until the NPU runs all of it, and prove each change.

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`).
    """
    try:
        from hexport.preparation.verb import prepare
        from hexport.preparation.view import show
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"prepare needs {error.name}, which is not in the core install",
            next="pip install 'hexport[build]'",
        ) from error

    with waiting(f"preparing {model}"):
        result = prepare(
            model,
            output=output,
            target=target,
            dims=dims,
            input_shapes=input_shapes,
            freeze=freeze or None,
            calib=calib,
            rules=rules,
            limits=make_limits(timeout, memory_limit),
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK
