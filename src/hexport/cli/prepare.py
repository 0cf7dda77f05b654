"""``hexport prepare``: make a model run whole on the NPU."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.model_options import (
    build_parts,
    calib_option,
    dims_option,
    freeze_option,
    input_shapes_option,
    limits_options,
    make_limits,
    output_option,
    preprocess_option,
    target_option,
)
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("model")
@output_option("The prepared model.")
@target_option()
@dims_option
@input_shapes_option
@freeze_option
@calib_option("Real inputs to prove changes on: FILE.npz, a folder, or MODULE:CALLABLE.")
@preprocess_option
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
    calib: str | None,
    preprocess: Path | None,
    rules: str | None,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Rewrite MODEL until the NPU runs all of it, and prove each change.

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`).
    """
    with build_parts("prepare"):
        from hexport.preparation.verb import prepare
        from hexport.preparation.view import show

    with waiting(f"preparing {model}"):
        result = prepare(
            model,
            output=output,
            target=target,
            dims=dims,
            input_shapes=input_shapes,
            freeze=freeze or None,
            calib=calib,
            preprocess=preprocess,
            rules=rules,
            limits=make_limits(timeout, memory_limit),
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK
