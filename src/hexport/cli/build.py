"""``hexport build``: from a model to a package that can be shipped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.model_options import (
    build_parts,
    dims_option,
    freeze_option,
    input_shapes_option,
    limits_options,
    make_limits,
)
from hexport.cli.output import console, json_option, print_json, telling
from hexport.cli.pte_options import GroupedCommand, PteWishes, given_options, pte_options
from hexport.cli.quantize import accuracy_options
from hexport.errors import UsageError

Number = int | float
_PACKAGE_ONLY = (
    "override", "keep_float", "ranges", "without", "effort", "freeze", "buckets", "pad", "with_cpu_model",
    "with_source_models", "share_weights",
)  # fmt: skip


def _parse_buckets(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[int]] | str | None:
    if "auto" in values:
        if len(values) > 1:
            raise click.BadParameter("auto proposes all buckets; give it alone")
        return "auto"
    found: dict[str, list[int]] = {}
    for value in values:
        name, _equals, text = value.rpartition("=")
        sizes = [part.strip() for part in text.split(",")]
        if not name or not all(part.isascii() and part.isdigit() for part in sizes):
            raise click.BadParameter(f"{value!r} is not NAME=SIZES, for example seq=16,64,256, or auto")
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice")
        found[name] = [int(part) for part in sizes]
    return found or None


def _parse_pad(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for value in values:
        name, _equals, text = value.rpartition("=")
        try:
            found[name] = float(text) if any(c in text.lower() for c in ".en") else int(text)
        except ValueError:
            name = ""
        if not name:
            raise click.BadParameter(f"{value!r} is not INPUT=NUMBER, for example input_ids=1")
    return found


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The package, a folder; or the .pte file. It appears whole or not at all.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["package", "pte"]),
    default="package",
    show_default=True,
    help="A package for hexport and ONNX Runtime, or ExecuTorch's file of a PyTorch model.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    help="The chip: SM8650, 57 or 'snapdragon 8 gen 3'. Repeatable.",
)
@click.option(
    "--scheme",
    metavar="SCHEME",
    help="fp16, 8a8w, 16a8w, 16a16w, 16a4w, 16a4w_block, or auto. "
    "[default: auto with --calib, in a .pte 16a8w; else fp16]",
)
@accuracy_options
@dims_option
@input_shapes_option
@freeze_option
@click.option(
    "--bucket",
    "buckets",
    multiple=True,
    metavar="NAME=N,N",
    callback=_parse_buckets,
    help="Sizes of a dynamic dim, for example seq=16,64,256; or auto, from the samples. Repeatable.",
)
@click.option(
    "--pad",
    multiple=True,
    metavar="INPUT=NUMBER",
    callback=_parse_pad,
    help="What an input is filled up with to a bucket's size. [default: 0] Repeatable.",
)
@click.option("--with-cpu-model/--without-cpu-model", default=True, show_default=True)
@click.option(
    "--with-source-models/--without-source-models",
    default=True,
    help="What buckets that share a binary were compiled from: only a simulator needs it. [default: with]",
)
@click.option(
    "--share-weights/--no-share-weights", default=True, help="One binary for all buckets. [default: share]"
)
@limits_options
@json_option
@pte_options
def command(
    model: str,
    output: Path,
    form: str,
    targets: tuple[str, ...],
    scheme: str | None,
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
    buckets: dict[str, list[int]] | str | None,
    pad: dict[str, Number],
    with_cpu_model: bool,
    with_source_models: bool,
    share_weights: bool,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
    pte: PteWishes,
) -> int:
    """Prepare, quantise, compile, verify and package MODEL: one folder to ship.

    MODEL is an ONNX file, zoo:NAME (see `hexport zoo list`), or PyTorch's: MODULE:FACTORY or
    path/to/file.py:FACTORY, a callable that returns (module, example_inputs), or a saved torch.export .pt2.
    Samples and a metric that such a model brings are used when --calib and --metric are not given. With
    --format pte a PyTorch model becomes a file for ExecuTorch, in a toolchain that has it.
    """
    if form == "pte":
        return _to_pte(
            model,
            output,
            targets,
            pte,
            as_json,
            {
                "scheme": scheme,
                "calib": calib,
                "preprocess": preprocess,
                "samples": samples,
                "min_sqnr": min_sqnr,
                "metric": metric,
                "max_drop": max_drop,
                "dims": {**dims, **input_shapes},
                "limits": make_limits(timeout, memory_limit),
            },
        )
    if pte.given:
        raise UsageError(
            f"{pte.given[0]} is an option of --format pte", next="add --format pte, or leave it out"
        )
    if output.is_file():
        raise UsageError(f"{output} is a file", why="a package is a folder", next="choose another -o")
    with build_parts("build"):
        from hexport.building.verb import build
        from hexport.building.view import show

    with telling(f"building {model}") as say:
        result = build(
            model,
            output=output,
            targets=targets,
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
            buckets=buckets,
            pad=pad,
            preprocess=preprocess,
            samples=samples,
            with_cpu_model=with_cpu_model,
            with_source_models=with_source_models,
            share_weights=share_weights,
            limits=make_limits(timeout, memory_limit),
            command=("hexport", *sys.argv[1:]),
            say=say,
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK if result.met else EXIT_SHORT


def _to_pte(
    model: str, output: Path, targets: tuple[str, ...], pte: PteWishes, as_json: bool, common: dict[str, Any]
) -> int:
    if others := given_options(_PACKAGE_ONLY):
        raise UsageError(
            f"{others[0]} is not for --format pte",
            why="ExecuTorch quantises and compiles; its own options are listed apart in --help",
            next="--precision keeps parts in float or on the CPU, --method has other sizes"
            if others[0] in ("--override", "--keep-float", "--bucket")
            else "leave it out",
        )
    if len(targets) > 1:
        raise UsageError("a .pte is for one chip", next="build one file for each --target")
    with build_parts("build"):
        from hexport.executorch.building.verb import build_pte
        from hexport.executorch.building.view import show

    with telling(f"building {model}") as say:
        result = build_pte(
            model,
            output=output,
            target=targets[0],
            methods=pte.methods,
            method_calib=pte.method_calib,
            options=pte.options,
            overrides=pte.overrides,
            training=pte.training,
            qnn_sdk=pte.qnn_sdk,
            sidecar=pte.sidecar,
            keep_quantised=pte.keep_quantised,
            native_log=pte.native_log,
            say=say,
            **common,
        )
    if as_json:
        print_json(result.to_json())
    else:
        show(result, console())
    return EXIT_OK if result.met else EXIT_SHORT
