"""``hexport compile``: models to context binaries."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    dims_option,
    input_shapes_option,
    limits_options,
    make_limits,
    native_log_option,
)
from hexport.cli.output import console, json_option, print_json, waiting


def _parse_more(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    result: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE; docs/options.md has them all")
        if key in result:
            raise click.BadParameter(f"{key!r} is given twice")
        result[key] = text
    return result


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder."
)
@click.option("--target", "targets", required=True, multiple=True, help="The chip. Repeatable.")
@click.option("--share-weights", is_flag=True, help="All models into one binary that holds weights once.")
@click.option("--multi-soc", is_flag=True, help="All targets into one binary.")
@click.option("--embed", is_flag=True, help="Put the binary inside the ONNX file.")
@click.option(
    "--finalization", type=click.IntRange(0, 3), help="How long the compiler optimises: 1 short, 3 long."
)
@click.option("--vtcm", type=click.IntRange(min=1), metavar="MB", help="Fast memory a graph may use.")
@click.option("--fp16/--no-fp16", default=None, help="Say that float graphs compute in fp16.")
@click.option("--priority", help="Of the context on the NPU: low, normal, normal_high, high, …")
@click.option("--io-quantization", type=click.Choice(["npu", "cpu"]), help="Who quantises inputs, outputs.")
@click.option("--prepare-only", is_flag=True, help="Only write the binary; prepare no session.")
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_more,
    help="Any other provider option. Repeatable.",
)
@click.option(
    "--nhwc-input", "nhwc_inputs", multiple=True, metavar="INPUT", help="Take it channels last. Repeatable."
)
@dims_option
@input_shapes_option
@click.option(
    "--require", metavar="full|PERCENT", help="Exit 1 unless all of it, or PERCENT of MACs, is on the NPU."
)
@click.option(
    "--all", "show_all", is_flag=True, help="List every CPU node, not only the first of each reason."
)
@limits_options
@native_log_option
@json_option
def command(
    models: tuple[str, ...],
    output: Path,
    targets: tuple[str, ...],
    share_weights: bool,
    multi_soc: bool,
    embed: bool,
    finalization: int | None,
    vtcm: int | None,
    fp16: bool | None,
    priority: str | None,
    io_quantization: str | None,
    prepare_only: bool,
    more: dict[str, str],
    nhwc_inputs: tuple[str, ...],
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    require: str | None,
    show_all: bool,
    timeout: float,
    memory_limit: int | None,
    native_log: Path | None,
    as_json: bool,
) -> int:
    """Compile MODELs for chips, and prove from the binaries what they are.

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`).
    """
    from hexport.compiling.options import CompileOptions
    from hexport.compiling.verb import compile_models
    from hexport.compiling.view import show

    options = CompileOptions(finalization, vtcm, fp16, priority, io_quantization, prepare_only, more)
    with waiting(f"compiling {', '.join(models)}"):
        result = compile_models(
            models,
            targets,
            output,
            options=options,
            share_weights=share_weights,
            multi_soc=multi_soc,
            embed=embed,
            nhwc_inputs=nhwc_inputs,
            dims=dims,
            input_shapes=input_shapes,
            require=require,
            limits=make_limits(timeout, memory_limit),
            native_log=native_log,
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console(), require=require, show_all=show_all)
    return EXIT_OK if result.meets(require) else EXIT_SHORT
