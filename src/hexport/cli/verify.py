"""``hexport verify``: a package or a model beside its reference."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    bucket_option,
    dims_option,
    input_shapes_option,
    inputs_option,
    limits_options,
    make_limits,
    samples_option,
    target_option,
)
from hexport.cli.output import console, json_option, print_json, waiting


@click.command()
@click.argument("thing", metavar="PKG|MODEL|PTE")
@click.option("--reference", metavar="MODEL", help="The original. [default: a package's own CPU model]")
@click.option(
    "--program",
    metavar="F.pt2|MODULE:FACTORY",
    help="What a PTE was made of, run by torch. [default: the file that its description names]",
)
@click.option(
    "--qdq",
    type=click.Path(path_type=Path),
    metavar="Q.pt2",
    help="Its quantised form. [default: NAME.qdq.pt2 beside NAME.pte]",
)
@inputs_option
@click.option(
    "--backend",
    type=click.Choice(["simulator", "cpu", "qnn-cpu", "gpu"]),
    default="simulator",
    show_default=True,
    help="What runs PKG|MODEL; the reference always runs on the CPU.",
)
@click.option("--min-sqnr", type=float, metavar="DB", help="The least for every output and sample.")
@click.option("--rtol", type=float, metavar="X", help="Allowed error, relative to the reference.")
@click.option("--atol", type=float, metavar="Y", help="Allowed error beyond that.")
@target_option(required=False)
@bucket_option
@click.option("--method", metavar="NAME", help="Of a PTE. [default: forward, or the only one]")
@samples_option
@dims_option
@input_shapes_option
@limits_options
@json_option
def command(
    thing: str,
    reference: str | None,
    program: str | None,
    qdq: Path | None,
    inputs: Path | None,
    backend: str,
    min_sqnr: float | None,
    rtol: float | None,
    atol: float | None,
    target: str | None,
    bucket: str | None,
    method: str | None,
    samples: int | None,
    dims: dict[str, int],
    input_shapes: dict[str, tuple[int, ...]],
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Compare PKG, MODEL or PTE with its reference on the same inputs: PASSED (exit 0) or FAILED (exit 1).

    It runs on the simulator, in the NPU's own arithmetic; the reference on the CPU, in full precision.
    A MODEL can also be run on QNN's CPU backend (qnn-cpu) or an Adreno GPU. A PTE is compared with the torch
    program that it was made of.
    For each output: the SQNR of the worst sample, the element that is furthest off, and the tolerance that
    would pass.
    """
    from hexport.executorch.verification.view import show
    from hexport.verification.verb import verify

    with waiting(f"verifying {thing}"):
        match = verify(
            thing,
            reference=reference,
            program=program,
            qdq=qdq,
            inputs=inputs,
            backend=backend,
            min_sqnr=min_sqnr,
            rtol=rtol,
            atol=atol,
            target=target,
            bucket=bucket,
            method=method,
            samples=samples,
            dims=dims,
            input_shapes=input_shapes,
            limits=make_limits(timeout, memory_limit),
        )
    if as_json:
        print_json(match.to_json())
    else:
        show(match, console())
    return EXIT_OK if match.passed else EXIT_SHORT
