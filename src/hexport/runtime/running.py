"""``run``: a package, a model or a ``.pte`` on the arrays of a file, or on the files of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.backend.where import QNN_CPU
from hexport.errors import UsageError
from hexport.packaging import open_package
from hexport.packaging.manifest import Tensor
from hexport.records import to_plain
from hexport.runtime.choosing import AUTO, SIMULATOR
from hexport.runtime.description import Description
from hexport.runtime.input_list_files import Files, Given
from hexport.runtime.loading import interpreter_of, load
from hexport.runtime.model_run import MODEL_BACKENDS, run_model
from hexport.runtime.native_words import native_words_to_stderr
from hexport.runtime.timing import Bench
from hexport.toolchain import Limits, only_here

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["Ran", "run"]


@dataclass(frozen=True)
class OutputShape:
    """An array of the result."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """What was run, and what came out."""

    thing: str
    samples: int
    outputs: tuple[OutputShape, ...]
    """As they are in the file."""
    description: Description | None = None
    """None: it was a plain model."""
    bench: Bench | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {"schema_version": 1, **to_plain(self)}


def run(
    thing: str | Path,
    *,
    inputs: str | Path | None = None,
    output: str | Path | None = None,
    samples: bool = False,
    input_list: str | Path | None = None,
    output_folder: str | Path | None = None,
    backend: str = AUTO,
    toolchain: str | None = None,
    target: str | int | None = None,
    method: str | None = None,
    isolate: bool = True,
    workers: int = 1,
    allow_cpu: bool = True,
    bench: bool = False,
    runs: int = 50,
    threads: int = 1,
    limits: Limits | None = None,
    say: Callable[[str], None] = lambda _: None,
    **tuning: Any,
) -> Ran:
    """Run ``thing`` on the arrays of ``inputs`` and write what comes out to ``output``.

    With ``samples`` the leading axis of every array counts samples, on both sides; an output whose shape
    differs between samples is stored as ``NAME@0``, ``NAME@1``, …. ``input_list`` is a text file with the
    files of one inference a line, and ``output_folder`` gets a file an output. ``bench`` measures a package
    or a ``.pte`` as well; ``method`` is one of a ``.pte``.
    Without ``isolate`` all that this process prints to stdout meanwhile goes to stderr: native code prints.
    ``toolchain`` and ``workers`` are as for :func:`hexport.load`.
    """
    files = Files(inputs, input_list, samples, output, output_folder)
    files.check(bench)
    if backend not in MODEL_BACKENDS:
        raise UsageError(f"backend {backend!r} is not known", next=f"use one of {', '.join(MODEL_BACKENDS)}")
    if not Path(thing).is_dir():
        _refuse_zip(Path(thing))
        tuning["workers"] = workers if workers != 1 else None
        if _is_pte(thing):
            _refuse_for_pte(thing, backend, allow_cpu, isolate, threads, tuning)
            return _run_pte(thing, files, method, target, toolchain, runs if bench else 0, limits)
        _refuse_method(thing, method)
        how = (backend, target, bench, limits, allow_cpu, tuning)
        with only_here(interpreter_of(toolchain)):
            return _run_model(thing, files, *how)
    _refuse_method(thing, method)
    if backend == QNN_CPU:
        raise UsageError(
            f"{thing} is a package, and that is not for {backend}",
            why="it holds code for the NPU",
            next="give the model that it was made from",
        )
    given = files.read(lambda: open_package(thing, verify=False).manifest.contract.inputs)
    results: list[dict[str, Array]] = []
    with (
        nullcontext() if isolate else native_words_to_stderr(),
        load(
            thing,
            backend,
            toolchain=toolchain,
            target=target,
            isolate=isolate,
            workers=workers,
            allow_cpu=allow_cpu,
            limits=limits,
            say=say,
            **tuning,
        ) as session,
    ):
        first = given.samples[0] if given.samples else None
        measured = session.bench(first, runs=runs, threads=threads) if bench else None
        results += [session.run(sample) for sample in given.samples]
        description = session.describe()
    return _ran(thing, files, given, results, description.notes, description, measured)


def _refuse_zip(path: Path) -> None:
    """A packed package is no model; what to do with it is said where packages are opened."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                open_package(path)


def _is_pte(thing: str | Path) -> bool:
    from hexport.executorch.pte.program import is_pte  # its room stands on this one

    return is_pte(thing)


def _run_pte(
    thing: str | Path,
    files: Files,
    method: str | None,
    target: str | int | None,
    toolchain: str | None,
    runs: int,
    limits: Limits | None,
) -> Ran:
    from hexport.executorch.running.loading import load_pte, ones

    loaded = load_pte(thing, method=method, target=target, toolchain=toolchain, limits=limits)
    given = files.read(lambda: loaded.signature.contract.inputs)
    done = loaded.run(given.samples or [ones(loaded.signature)], runs)
    outputs = done.outputs if given.samples else ()
    return _ran(thing, files, given, outputs, done.notes, measured=done.bench)


def _refuse_for_pte(
    thing: str | Path,
    backend: str,
    allow_cpu: bool,
    isolate: bool,
    threads: int,
    tuning: Mapping[str, object],
) -> None:
    """Nothing that is asked for is left out without a word."""
    if backend not in (AUTO, SIMULATOR):
        raise UsageError(
            f"{thing} cannot run on {backend!r} here",
            why="a .pte is run by ExecuTorch, which has Qualcomm's simulator on this side",
            next="leave --backend out; on a device it is run by ExecuTorch's qnn_executor_runner",
        )
    asked = [name for name, value in tuning.items() if value is not None]
    wishes = {"--no-cpu": not allow_cpu, "--in-process": not isolate, "--threads": threads != 1}
    asked_too = [name for name, given in wishes.items() if given]
    if asked or asked_too:
        what = asked_too[0] if asked_too else f"--{asked[0].replace('_', '-')}"
        raise UsageError(
            f"{what} is not for a .pte",
            why="its program says itself what runs where, and with which options",
            next=f"leave {what} out; `hexport inspect` tells what the program says",
        )


def _refuse_method(thing: str | Path, method: str | None) -> None:
    if method is not None:
        raise UsageError(f"--method {method}: {thing} is no .pte, and only those have methods")


def _run_model(
    thing: str | Path,
    files: Files,
    backend: str,
    target: str | int | None,
    bench: bool,
    limits: Limits | None,
    allow_cpu: bool,
    tuning: Mapping[str, object],
) -> Ran:
    asked = [name for name, value in tuning.items() if value is not None]
    if bench or asked:
        what = "--bench" if bench else f"--{asked[0].replace('_', '-')}"
        raise UsageError(f"{what} is for packages, and {thing} is a model", next="hexport build")
    given = files.read(lambda: _inputs_of_model(thing))
    results, lines = run_model(thing, given.samples, backend, target, limits, allow_cpu=allow_cpu)
    return _ran(thing, files, given, results, lines)


def _inputs_of_model(thing: str | Path) -> tuple[Tensor, ...]:
    from hexport import zoo
    from hexport.model import read

    source = read(zoo.resolve(thing))
    return tuple(
        Tensor(name, tensor.dtype, tensor.shape, name in source.defaults)
        for name, tensor in source.graph.inputs.items()
    )


def _ran(
    thing: str | Path,
    files: Files,
    given: Given,
    results: Sequence[Mapping[str, Array]],
    notes: Sequence[str],
    description: Description | None = None,
    measured: Bench | None = None,
) -> Ran:
    arrays, more = files.keep(results, given)
    shapes = tuple(OutputShape(name, array.dtype.name, array.shape) for name, array in arrays.items())
    return Ran(str(thing), len(given.samples), shapes, description, measured, (*notes, *more))
