"""``hexport quantize``: a float model in integers, as exact as asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
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
from hexport.cli.output import console, json_option, print_json, telling

# To know them must not take what it takes to use them; a test compares them with the quantiser's own.
RANGES = ("min-max", "percentile", "mse", "entropy")
TECHNIQUES = ("equalised-channels", "error-carrying-rounding", "bias-correction", "measured-bias")
_ACCURACY = (
    calib_option("Real inputs: FILE.npz, a folder, or MODULE:CALLABLE."),
    preprocess_option,
    click.option("--samples", type=click.IntRange(min=1), metavar="N", help="Use the first N samples only."),
    click.option("--min-sqnr", type=float, metavar="DB", help="How close to the float model it must come."),
    click.option("--metric", metavar="MODULE:FUNC", help="Your own measure of the results instead of dB."),
    click.option("--max-drop", type=float, metavar="X", help="How much of the metric may be lost."),
    click.option(
        "--override",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Schemes of nodes and ranges of tensors that are settled; a .quant.json serves.",
    ),
    click.option(
        "--keep-float",
        multiple=True,
        metavar="NODE|OP|TENSOR|REGEX",
        help="Nodes that stay fp16. Repeatable.",
    ),
    click.option(
        "--ranges",
        type=click.Choice(RANGES),
        help="How ranges are made of what was seen. [default: the best of some]",
    ),
    click.option(
        "--without",
        multiple=True,
        type=click.Choice(TECHNIQUES),
        help="A technique that is not to be tried. Repeatable.",
    ),
    click.option(
        "--effort",
        type=click.Choice(["fast", "normal", "high"]),
        default="normal",
        show_default=True,
        help="How much is tried.",
    ),
)


def accuracy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What verbs that quantise are told of the data and of the accuracy."""
    for option in reversed(_ACCURACY):
        function = option(function)
    return function


@click.command()
@click.argument("model")
@output_option("The quantised model; its decisions go to OUTPUT's name with .quant.json.")
@target_option()
@click.option(
    "--scheme",
    default="auto",
    show_default=True,
    metavar="SCHEME",
    help="fp16, 8a8w, 16a8w, 16a16w, 16a4w, 16a4w_block, or auto: the cheapest that is exact enough.",
)
@accuracy_options
@dims_option
@input_shapes_option
@freeze_option
@limits_options
@json_option
def command(
    model: str,
    output: Path,
    target: str,
    scheme: str,
    calib: str | None,
    preprocess: Path | None,
    samples: int | None,
    min_sqnr: float | None,
    metric: str | None,
    max_drop: float | None,
    override: Path | None,
    keep_float: tuple[str, ...],
    ranges: str | None,
    without: tuple[str, ...],
    effort: str,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    freeze: dict[str, str],
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Write MODEL in integers for the NPU, and prove how close it comes.

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`). It is prepared first unless it was before.
    """
    with build_parts("quantize"):
        from hexport.quantization.verb import quantize

    with telling(f"quantising {model}") as say:
        result = quantize(
            model,
            output=output,
            target=target,
            scheme=scheme,
            calib=calib,
            min_sqnr=min_sqnr,
            metric=metric,
            max_drop=max_drop,
            override=override,
            keep_float=keep_float,
            ranges=ranges,
            without=without,
            effort=effort,
            dims=dims,
            input_shapes=input_shapes,
            freeze=freeze or None,
            preprocess=preprocess,
            samples=samples,
            limits=make_limits(timeout, memory_limit),
            say=say,
        )
    if as_json:
        print_json(result.to_json())
    else:
        from hexport.quantization.view import show

        show(result, console())
    return EXIT_OK if result.met else EXIT_SHORT
