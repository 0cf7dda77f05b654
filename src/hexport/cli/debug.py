"""``hexport debug``: from a failure to what makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    build_parts,
    calib_option,
    custom_ops_option,
    dims_option,
    input_shapes_option,
    limits_options,
    make_limits,
    native_log_option,
    output_option,
    provider_option,
    target_option,
)
from hexport.cli.output import console, json_option, print_json, telling, waiting

if TYPE_CHECKING:
    from hexport.faultfinding.reduce import Step


@click.group()
def command() -> None:
    """Find out what in a model makes it fail, and record it for a bug report."""


@command.command("reduce")
@click.argument("model")
@output_option("The smallest piece that fails; its inputs go beside it, as .npz.")
@target_option(required=False)
@dims_option
@input_shapes_option
@click.option(
    "--below",
    type=float,
    metavar="DB",
    help="Results this far from the CPU's are a failure. [default: 30]",
)
@calib_option("Real inputs to run on: FILE.npz, a folder, or MODULE:CALLABLE; the first sample is used.")
@click.option(
    "--check",
    metavar="COMMAND",
    help="A command with {model} in it, started without a shell; exit code 0: the failure still shows.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds after which the smallest piece so far is taken. [default: none]",
)
@limits_options
@json_option
def reduce_command(
    model: str,
    output: Path,
    target: str | None,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    below: float | None,
    calib: str | None,
    check: str | None,
    budget: float | None,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Cut MODEL down to the smallest piece that fails in the same way.

    MODEL is an ONNX file, or zoo:NAME. The failure is what the compiler or the simulator does for
    --target: an error, a crash, a time-out, or wrong results; or what the command of --check says.
    Exit code 1: the model does not fail.
    """
    with build_parts("debug reduce"):
        from hexport.faultfinding.verb import debug_reduce
        from hexport.faultfinding.view import show

    with _counting(f"reducing {model}") as progress:
        result = debug_reduce(
            model,
            output=output,
            target=target,
            dims=dims,
            input_shapes=input_shapes,
            below=below,
            calib=calib,
            check=check,
            budget=budget,
            limits=make_limits(timeout, memory_limit),
            progress=progress,
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK if result.failure is not None else EXIT_SHORT


@command.command("record")
@click.argument("model")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="A new folder."
)
@target_option()
@dims_option
@input_shapes_option
@provider_option
@custom_ops_option
@limits_options
@native_log_option
@json_option
def record_command(
    model: str,
    output: Path,
    target: str,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    more: dict[str, str],
    custom_ops: tuple[Path, ...],
    timeout: float,
    memory_limit: int | None,
    native_log: Path | None,
    as_json: bool,
) -> int:
    """Write down the calls that MODEL becomes, for a bug report about the compiler.

    MODEL is an ONNX file, or zoo:NAME. Nothing is compiled and nothing computed: there are no results.
    The folder has the calls as a C program, their data, and record.json with all else that is asked for.
    """
    from hexport.faultfinding.bug_report import debug_record
    from hexport.faultfinding.call_record_view import show

    with waiting(f"recording {model}"):
        record = debug_record(
            model,
            output=output,
            target=target,
            dims=dims,
            input_shapes=input_shapes,
            options=more,
            custom_ops=custom_ops,
            limits=make_limits(timeout, memory_limit),
            native_log=native_log,
        )
    if as_json:
        print_json(record.to_json())
    else:
        show(record, console())
    return EXIT_OK


@contextmanager
def _counting(what: str) -> Iterator[Callable[[Step], None]]:
    """A line on stderr that says how small the piece is by now, for people at a terminal only."""
    with telling(what) as say:
        yield lambda step: say(f"{step.nodes} of {step.of} nodes, piece {step.tried + 1}")
