"""``hexport compile``: models to context binaries, or to DLC files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    custom_ops_option,
    dims_option,
    input_shapes_option,
    limits_options,
    make_limits,
    native_log_option,
    provider_option,
)
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder; for a DLC of one graph the file.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["context", "dlc"]),
    default="context",
    show_default=True,
    help="Code for the chips, or the graph for Qualcomm's own tools.",
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
@provider_option
@custom_ops_option
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
    form: str,
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
    custom_ops: tuple[Path, ...],
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

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`). With --format dlc nothing is compiled: what
    the NPU of --target takes becomes a graph for Qualcomm's own tools.
    """
    from hexport.compiling.options import CompileOptions

    options = CompileOptions(finalization, vtcm, fp16, priority, io_quantization, prepare_only, more)
    common: dict[str, Any] = {
        "options": options,
        "nhwc_inputs": nhwc_inputs,
        "dims": dims,
        "input_shapes": input_shapes,
        "custom_ops": custom_ops,
        "require": require,
        "limits": make_limits(timeout, memory_limit),
        "native_log": native_log,
    }
    flags = {"--share-weights": share_weights, "--multi-soc": multi_soc, "--embed": embed}
    with waiting(f"compiling {', '.join(models)}"):
        if form == "dlc":
            result, show = _to_dlc(models, targets, output, flags, common)
        else:
            result, show = _to_contexts(models, targets, output, flags, common)
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console(), require=require, show_all=show_all)
    return EXIT_OK if result.meets(require) else EXIT_SHORT


def _to_contexts(
    models: tuple[str, ...], targets: tuple[str, ...], output: Path, flags: dict[str, bool], common: Any
) -> tuple[Any, Callable[..., None]]:
    from hexport.compiling.verb import compile_models
    from hexport.compiling.view import show

    if output.suffix.lower() == ".dlc" and not output.is_dir():
        raise click.UsageError(f"-o {output} names a DLC: add --format dlc, or name a folder")
    made = compile_models(
        models,
        targets,
        output,
        share_weights=flags["--share-weights"],
        multi_soc=flags["--multi-soc"],
        embed=flags["--embed"],
        **common,
    )
    return made, show


def _to_dlc(
    models: tuple[str, ...], targets: tuple[str, ...], output: Path, flags: dict[str, bool], common: Any
) -> tuple[Any, Callable[..., None]]:
    from hexport.compiling.dlc import compile_to_dlc
    from hexport.compiling.dlc_view import show

    for flag, given in flags.items():
        if given:
            raise click.UsageError(f"{flag} has no meaning for a DLC, which is no code for a chip")
    if len(targets) > 1:
        raise click.UsageError(
            "a DLC is no code for a chip: --target says whose NPU is asked what it takes, so give one"
        )
    return compile_to_dlc(models, targets[0], output, **common), show
