"""``run``: a package or a model on the arrays of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.backend.where import QNN_CPU
from hexport.errors import UsageError
from hexport.packaging import open_package
from hexport.records import to_plain
from hexport.runtime.array_files import join_samples, read_arrays, split_samples, write_arrays
from hexport.runtime.choosing import AUTO
from hexport.runtime.description import Description
from hexport.runtime.loading import interpreter_of, load
from hexport.runtime.model_run import MODEL_BACKENDS, run_model
from hexport.runtime.native_words import native_words_to_stderr
from hexport.runtime.timing import Bench
from hexport.toolchain import Limits, only_here
from hexport.whole_file import refuse_missing_folder

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
    backend: str = AUTO,
    toolchain: str | None = None,
    target: str | int | None = None,
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
    differs between samples is stored as ``NAME@0``, ``NAME@1``, …. ``bench`` measures a package as well.
    Without ``isolate`` all that this process prints to stdout meanwhile goes to stderr: native code prints.
    ``toolchain`` and ``workers`` are as for :func:`hexport.load`.
    """
    if inputs is None and not bench:
        raise UsageError("there is nothing to run on", next="give --inputs F.npz, or --bench")
    if output is not None:
        refuse_missing_folder(Path(output))
    if backend not in MODEL_BACKENDS:
        raise UsageError(f"backend {backend!r} is not known", next=f"use one of {', '.join(MODEL_BACKENDS)}")
    given = _given(inputs, samples)
    if not Path(thing).is_dir():
        _refuse_zip(Path(thing))
        tuning["workers"] = workers if workers != 1 else None
        how = (backend, target, bench, limits, allow_cpu, tuning)
        with only_here(interpreter_of(toolchain)):
            return _run_model(thing, given, output, samples, *how)
    if backend == QNN_CPU:
        raise UsageError(
            f"{thing} is a package, and that is not for {backend}",
            why="it holds code for the NPU",
            next="give the model that it was made from",
        )
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
        measured = session.bench(given[0] if given else None, runs=runs, threads=threads) if bench else None
        results += [session.run(sample) for sample in given]
        description = session.describe()
    kept = _keep(results, output, samples)
    return Ran(str(thing), len(given), kept, description, measured, description.notes)


def _refuse_zip(path: Path) -> None:
    """A packed package is no model; what to do with it is said where packages are opened."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                open_package(path)


def _given(inputs: str | Path | None, samples: bool) -> list[dict[str, Array]]:
    if inputs is None:
        return []
    arrays = read_arrays(Path(inputs))
    return split_samples(arrays, Path(inputs)) if samples else [arrays]


def _run_model(
    thing: str | Path,
    given: list[dict[str, Array]],
    output: str | Path | None,
    samples: bool,
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
    results, lines = run_model(thing, given, backend, target, limits, allow_cpu=allow_cpu)
    return Ran(str(thing), len(given), _keep(results, output, samples), notes=lines)


def _keep(
    results: list[dict[str, Array]], output: str | Path | None, samples: bool
) -> tuple[OutputShape, ...]:
    if not results:
        return ()
    arrays = join_samples(results) if samples else results[0]
    if output is not None:
        write_arrays(Path(output), arrays)
    return tuple(OutputShape(name, array.dtype.name, array.shape) for name, array in arrays.items())
