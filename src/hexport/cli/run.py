"""``hexport run``: a package, a model or a .pte on the arrays of a file, or the files of a list."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.model_options import limits_options, make_limits, target_option
from hexport.cli.output import console, json_option, print_json, telling


@click.command()
@click.argument("thing", metavar="PKG|MODEL|PTE")
@click.option(
    "--inputs", type=click.Path(path_type=Path), metavar="F.npz", help="One array an input, by its name."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="G.npz",
    help="Where the outputs go, by name.",
)
@click.option("--samples", is_flag=True, help="The leading axis of every array counts samples.")
@click.option(
    "--input-list",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Text: one inference a line, a raw or .npy file an input; NAME:=FILE.",
)
@click.option(
    "--output-folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Gets output_<line>_<index>, .raw if the inputs are, else .npy.",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "npu", "simulator", "gpu", "cpu", "qnn-cpu"]),
    default="auto",
    show_default=True,
    help="auto: the NPU; the CPU on a machine without one. qnn-cpu: QNN's reference, for a MODEL.",
)
@target_option(required=False)
@click.option("--method", metavar="NAME", help="Of a PTE. [default: forward, or the only one]")
@click.option("--no-cpu", is_flag=True, help="What would run on the CPU beside the backend is an error.")
@click.option("--in-process", is_flag=True, help="Without a worker: a native crash ends hexport.")
@click.option("--performance", metavar="MODE", help="burst, balanced, power_saver, …")
@click.option("--priority", metavar="P", help="low, normal, high, …")
@click.option("--rpc-latency", type=click.IntRange(min=0), metavar="US", help="RPC control latency.")
@click.option("--profiling", metavar="LEVEL", help="basic, detailed, optrace.")
@click.option("--profiling-file", type=click.Path(path_type=Path), metavar="FILE", help="Its CSV.")
@click.option("--bench", is_flag=True, help="Measure: load, first, warm, throughput, memory.")
@click.option("--runs", type=click.IntRange(min=1), default=50, show_default=True, help="For --bench.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="For --bench.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@limits_options
@json_option
def command(
    thing: str,
    inputs: Path | None,
    output: Path | None,
    samples: bool,
    input_list: Path | None,
    output_folder: Path | None,
    backend: str,
    target: str | None,
    method: str | None,
    no_cpu: bool,
    in_process: bool,
    performance: str | None,
    priority: str | None,
    rpc_latency: int | None,
    profiling: str | None,
    profiling_file: Path | None,
    bench: bool,
    runs: int,
    threads: int,
    workers: int,
    timeout: float,
    memory_limit: int | None,
    as_json: bool,
) -> int:
    """Run PKG, MODEL or PTE on the arrays of F.npz and write the outputs to G.npz.

    A package runs like the original model, whatever sizes were compiled, and what ran where is shown. A plain
    model runs on the CPU, on the simulator of --target, on an Adreno GPU or on QNN's CPU backend. A .pte runs
    on the simulator, by ExecuTorch in its toolchain.
    """
    from hexport.runtime.running import run
    from hexport.runtime.view import show

    with telling(f"running {thing}") as say:
        ran = run(
            thing,
            inputs=inputs,
            output=output,
            samples=samples,
            input_list=input_list,
            output_folder=output_folder,
            backend=backend,
            target=target,
            method=method,
            isolate=not in_process,
            allow_cpu=not no_cpu,
            bench=bench,
            runs=runs,
            threads=threads,
            workers=workers,
            limits=make_limits(timeout, memory_limit),
            say=say,
            performance=performance,
            priority=priority,
            rpc_latency=rpc_latency,
            profiling=profiling,
            profiling_file=profiling_file,
        )
    if as_json:
        print_json(ran.to_json())
    else:
        show(ran, output or (output_folder if ran.outputs else None), console())
    return EXIT_OK
