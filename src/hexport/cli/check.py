"""``hexport check``: what of a model runs on the NPU, or on another QNN backend."""

from __future__ import annotations

from pathlib import Path

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
    target_option,
)
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("model")
@target_option(required=False)
@click.option(
    "--backend",
    type=click.Choice(["htp", "qnn-cpu", "gpu"]),
    default="htp",
    show_default=True,
    help="htp: the NPU of --target. The others take no --target.",
)
@click.option("--scheme", help="Fail unless the model is in this scheme: fp16, 8a8w, 16a8w, …")
@dims_option
@input_shapes_option
@click.option(
    "--require", metavar="full|PERCENT", help="Exit 1 unless all of it, or PERCENT of MACs, is there."
)
@click.option(
    "--all", "show_all", is_flag=True, help="List every CPU node, not only the first of each reason."
)
@provider_option
@custom_ops_option
@limits_options
@native_log_option
@json_option
def command(
    model: str,
    target: str | None,
    backend: str,
    scheme: str | None,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    require: str | None,
    show_all: bool,
    more: dict[str, str],
    custom_ops: tuple[Path, ...],
    timeout: float,
    memory_limit: int | None,
    native_log: Path | None,
    as_json: bool,
) -> int:
    """Ask Qualcomm's compiler what of MODEL runs on the NPU, and why the rest does not.

    MODEL is an ONNX file, or zoo:NAME (see `hexport zoo list`). QNN's reference on the CPU (qnn-cpu) and the
    Adreno GPU (gpu) can be asked the same.
    """
    from hexport.observe.check import check
    from hexport.observe.verdict_view import show

    with waiting(f"asking the compiler about {model}"):
        verdict = check(
            model,
            target=target,
            backend=backend,
            scheme=scheme,
            dims=dims,
            input_shapes=input_shapes,
            require=require,
            options=more,
            custom_ops=custom_ops,
            limits=make_limits(timeout, memory_limit),
            native_log=native_log,
        )
    if as_json:
        print_json(verdict.to_json())
    else:
        show(verdict, console(), require=require, show_all=show_all)
    return EXIT_OK if verdict.meets(require) else EXIT_SHORT
