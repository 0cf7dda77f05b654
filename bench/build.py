"""The zoo through ``hexport build``, and the bare steps of it done by hand, in one run.

    python bench/build.py [--models a,b] [--schemes auto,fp16] [--target SM8650] [--resume]
                          [--without buckets,hand] [--jobs 2]

Each model is built from nothing with an empty cache, and again with what the first build kept: ``auto`` with
the zoo's calibration inputs, ``fp16`` without any. By hand is what ONNX Runtime's documentation says: shapes
fixed, its recipe for QNN (16-bit activations, 8-bit weights; not for fp16), ModelCompiler; each step in a
process of its own, and nothing of it is verified. Models with dims to vary are also built in several buckets
and in the largest alone (build_buckets.py). Times are wall times, so nothing else should run; the processors'
own time stands beside them where the system tells it, and hardly depends on what else runs.

JSON goes to bench/results after each model, and --resume goes on from there. What fails is told in its row,
and the next model has its turn.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hexport
from arguments import chip, listed, positive
from build_buckets import DONE, binaries, has_buckets, measure_buckets
from build_report import OURS, Measured, Results, show
from command import run_hexport, why
from fixed_shapes import fix_shapes
from hexport import facts, zoo
from hexport.model import read
from hexport.model.digests import bytes_of
from hexport.storage.keys import own_code
from hexport.storage.place import zoo_folder
from plain_runs import one_line
from quantize_sides import by_stock, write_samples
from timed_child import Ended, run_timed

RESULTS = Path(__file__).parent / "results"
COMPILE = Path(__file__).with_name("plain_compile.py")
SCHEMES = ("auto", "fp16")
PARTS = ("buckets", "hand")
BY_HAND = "16a8w"
"""What stands beside ``auto``: the precision that the stock recipe is mostly used with."""
CALIBRATION = 8


def main() -> None:
    """Measure, show, write."""
    options = _options()
    names = options.models or zoo.names()
    file = RESULTS / ("build-some.json" if options.models else "build.json")
    results = Results.begin(file, _settings(options), resume=options.resume)
    _as_installed()
    left = [(name, scheme) for name in names for scheme in options.schemes if not results.has(name, scheme)]
    # Processes, because the empty cache of a build is a variable of the environment.
    with ProcessPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(_measured, *each, options) for each in left]):
            measured = done.result()
            results.add(measured)
            told = measured.failure or f"{measured.first_seconds:.0f} s"
            print(f"{measured.model} {measured.scheme}: {told}", file=sys.stderr, flush=True)
    show([run for run in results.runs if run.model in names and run.scheme in options.schemes])
    print(f"written: {file.parent.name}/{file.name}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=listed(zoo.names()), metavar="A,B", help="all by default")
    parser.add_argument("--schemes", type=listed(SCHEMES), default=list(SCHEMES), metavar="A,B")
    parser.add_argument("--target", type=chip, default="SM8650")
    parser.add_argument("--limit", type=float, default=7200.0, metavar="SECONDS", help="for each process")
    parser.add_argument("--without", type=listed(PARTS), default=[], metavar="A,B", help="leave these out")
    parser.add_argument(
        "--jobs", type=positive, default=1, help="builds at a time; more than 1 spoils the times"
    )
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What results of one file must have in common."""
    packages = {name: version(name) for name in ("onnxruntime", "onnxruntime-qnn")}
    return {
        **packages,
        "target": options.target,
        "calibration_samples": CALIBRATION,
        "without": options.without,
    }


def _as_installed() -> None:
    """As after ``pip install``, Python finds hexport compiled: its compiling is in neither time."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(hexport.__file__).parent, quiet=2)


@dataclass(frozen=True)
class Timed:
    """A command's end, its document, and what it took of the processors."""

    ended: Ended
    document: dict[str, Any]
    cpu_seconds: float | None

    @property
    def failure(self) -> str:
        return "" if self.ended.code in DONE and self.document else why(self.ended, self.document)


def _measured(name: str, scheme: str, options: argparse.Namespace) -> Measured:
    """The measurement, or why there is none: one model must not end the run."""
    try:
        return _measure(name, scheme, options)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others have their turn
        words = one_line(f"{type(error).__name__}: {error}")
        return Measured(name, scheme, onnx_bytes=0, first_seconds=0.0, failure=f"{OURS}: {words}")


def _measure(name: str, scheme: str, options: argparse.Namespace) -> Measured:
    source = zoo.get(name)
    with tempfile.TemporaryDirectory(prefix="hexport-bench-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        calib = ["--calib", f"zoo:{name}"] if scheme == "auto" else []

        def build(output: Path, words: Sequence[str]) -> tuple[Ended, dict[str, Any]]:
            timed = _build(name, output, [*calib, *words], options)
            return timed.ended, timed.document

        with _empty_cache(folder):
            first = _build(name, folder / "pkg", calib, options)
            figures: dict[str, Any] = {
                "onnx_bytes": bytes_of(read(source)),
                "first_seconds": first.ended.seconds,
                "first_cpu_seconds": first.cpu_seconds,
                "code": own_code()[:12],
            }
            if first.failure:
                return Measured(name, scheme, failure=first.failure, **figures)
            figures |= _built(first) | _again(_build(name, folder / "pkg", calib, options))
            if "buckets" not in options.without and has_buckets(name, calibrated=bool(calib)):
                figures["buckets"] = _caught(lambda: measure_buckets(name, folder, build), "failure")
        if "hand" not in options.without:
            figures |= _caught(lambda: _by_hand(name, source, scheme, folder, options), "hand_failure")
    return Measured(name, scheme, **figures)


def _caught(measure: Any, failure: str) -> dict[str, Any]:
    """What ``measure`` gives; an exception in it does not take what was measured before along."""
    try:
        found: dict[str, Any] = measure()
    except Exception as error:  # noqa: BLE001 - see _measured
        return {failure: one_line(f"{OURS}: {type(error).__name__}: {error}")}
    return found


def _built(first: Timed) -> dict[str, Any]:
    document = first.document
    return {
        "met": document["met"],
        "chosen": document["scheme"],
        "lowest_db": _lowest(document),
        "package_bytes": document["bytes_after"],
        "binary_bytes": binaries(document),
        "peak_bytes": first.ended.peak_bytes,
    }


def _again(second: Timed) -> dict[str, Any]:
    if second.failure:
        return {"second_failure": second.failure}
    return {
        "second_seconds": second.ended.seconds,
        "second_cpu_seconds": second.cpu_seconds,
        "second_made": sum(second.document["cache"]["made"].values()),
    }


@contextmanager
def _empty_cache(folder: Path) -> Iterator[None]:
    """Steps begin from nothing; the zoo's files are not what is measured."""
    root = folder / "cache"
    root.mkdir()
    (root / "zoo").symlink_to(zoo_folder(), target_is_directory=True)
    before = os.environ.get("HEXPORT_CACHE")
    os.environ["HEXPORT_CACHE"] = str(root)
    try:
        yield
    finally:
        del os.environ["HEXPORT_CACHE"]
        if before is not None:
            os.environ["HEXPORT_CACHE"] = before


def _build(name: str, output: Path, words: Sequence[str], options: argparse.Namespace) -> Timed:
    command = ["build", f"zoo:{name}", "-o", str(output), "--target", options.target, *words]
    before = _children_seconds()
    ended, document = run_hexport(command, options.limit)
    after = _children_seconds()
    return Timed(ended, document, None if before is None or after is None else after - before)


def _children_seconds() -> float | None:
    """Of all processes that ended and were waited for, and of theirs; None: the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lowest(document: Mapping[str, Any]) -> float | str | None:
    found = [output["sqnr_db"] for one in document["verification"] for output in one["outputs"]]
    numbers = [value for value in found if not isinstance(value, str)]
    if "broken" in found:
        return "broken"
    return min(numbers) if numbers else next(iter(found), None)


def _by_hand(
    name: str, source: Path, scheme: str, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """The bare steps."""
    fixed = folder / "fixed.onnx"
    shapes = zoo.entry(name).input_shapes
    fix_shapes(source, shapes, fixed)
    model, seconds = fixed, 0.0
    if scheme == "auto":
        samples = write_samples(
            zoo.inputs(name, split="calib", count=CALIBRATION), folder / "calib", set(shapes)
        )
        made = by_stock(fixed, samples, folder / "stock", BY_HAND, options.limit)
        if made.file is None:
            return {"hand_seconds": made.seconds, "hand_failure": f"quantising: {made.failure}"}
        model, seconds = made.file, made.seconds
    output = folder / "hand"
    output.mkdir()
    soc = str(facts.find_target(options.target).soc_model)
    ended = run_timed(
        [sys.executable, str(COMPILE), str(model), str(output / "model_ctx.onnx"), soc], options.limit
    )
    size = sum(path.stat().st_size for path in output.glob("*.bin"))
    # The compiler is content to compile nothing.
    failure = one_line(ended.words) or ("" if size else "no binary: nothing went to the NPU")
    return {
        "hand_seconds": seconds + ended.seconds,
        "hand_bytes": size,
        "hand_failure": f"compiling: {failure}" if failure else "",
    }


if __name__ == "__main__":
    main()
