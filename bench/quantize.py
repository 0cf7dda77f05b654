"""The zoo quantised by ONNX Runtime's documented recipe and by ``hexport quantize``, in one run.

    python bench/quantize.py [--models a,b] [--schemes 8a8w,16a8w,auto] [--prepared FOLDER] [--resume]

Each model is quantised three times a scheme, with the same 8 calibration samples: by the stock recipe on the
model with fixed shapes, as documented; by the stock recipe on what ``hexport prepare`` made of it (without
metadata, of which it would die); and by hexport, from that same prepared model. ``auto`` is hexport's alone
and is asked for 30 dB. Every result runs on the simulator on test inputs that no side has seen, against the
original model in fp32 on the CPU. Wall time and peak memory are those of the quantising process with all that
it starts; hexport's includes its own trials on the simulator. JSON goes to bench/results after each result,
and --resume goes on from there. With --efforts: time and memory of ``--effort fast`` beside the stock
methods, at 8 and at 512 samples (see quantize_efforts.py). With --own MODEL.onnx CALIB.npz TEST.npz: a model
that is not in the zoo.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from arguments import chip, listed, positive
from fixed_shapes import fix_shapes
from hexport import facts, zoo
from quantize_case import CALIBRATION, Case, OwnCase
from quantize_efforts import compare_efforts
from quantize_report import Results, show
from quantize_sides import (
    ACTIVATIONS,
    Made,
    by_hexport,
    by_stock,
    prepare,
    without_metadata,
)

RESULTS = Path(__file__).parent / "results"
SCHEMES = (*ACTIVATIONS, "auto")
AUTO_DB = 30.0
THOROUGHLY = ["oww-embedding", "efficientnet-lite0"]


def main() -> None:
    """Measure, show, write."""
    options = _options()
    if options.efforts:
        compare_efforts(
            options.models or zoo.names(), THOROUGHLY, options.prepared, options.target, options.limit
        )
        return
    names = [options.own[0].stem] if options.own else options.models or zoo.names()
    kind = "-own" if options.own else "-some" if options.models else ""
    file = RESULTS / f"quantize{kind}.json"
    results = Results.begin(file, _settings(options), resume=options.resume)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda name: _measure_model(name, options, results), names))
    show([run for run in results.runs if run.model in names], names)
    print(f"written: {file.parent.name}/{file.name}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=listed(zoo.names()), metavar="A,B", help="all by default")
    parser.add_argument("--own", nargs=3, type=Path, metavar=("MODEL", "CALIB", "TEST"))
    parser.add_argument("--schemes", type=listed(SCHEMES), default=list(SCHEMES), metavar="A,B")
    parser.add_argument("--target", type=chip, default="SM8650")
    parser.add_argument("--test-samples", type=positive, default=3, metavar="N")
    parser.add_argument("--task-samples", type=positive, metavar="N", help="for the task's figures, at most")
    parser.add_argument("--effort", choices=("fast", "normal", "high"), default="normal")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="keep prepared models here")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS", help="for each process")
    parser.add_argument(
        "--jobs", type=positive, default=1, help="models at a time; more than 1 spoils the times"
    )
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    parser.add_argument("--efforts", action="store_true", help="only the table of --effort fast")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What results of one file must have in common."""
    packages = {name: version(name) for name in ("onnxruntime", "onnxruntime-qnn")}
    asked = {key: getattr(options, key) for key in ("target", "effort", "test_samples", "task_samples")}
    return {**packages, **asked, "calibration_samples": CALIBRATION, "auto_min_sqnr": AUTO_DB}


def _measure_model(name: str, options: argparse.Namespace, results: Results) -> None:
    missing = [key for key in _wanted(options.schemes) if not results.has(name, *key)]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as temporary:
        folder = Path(temporary)
        soc = facts.find_target(options.target)
        about = (name, soc, options.test_samples, folder, options.task_samples)
        case = OwnCase(*about, files=options.own) if options.own else Case(*about)
        kept = options.prepared or folder
        kept.mkdir(parents=True, exist_ok=True)
        prepared = kept / f"{name}.onnx"
        making = None if prepared.is_file() else prepare(case.asked, prepared, options.target, options.limit)
        for side, scheme in missing:
            if side != "documented" and making is not None and making.file is None:
                made = Made(None, making.seconds, making.peak_bytes, f"not prepared: {making.failure}")
            else:
                made = _make(case, side, scheme, prepared, options)
            run = case.judge(side, scheme, made)
            results.add(run)
            print(f"{name} {side} {scheme}: {run}", file=sys.stderr, flush=True)


def _wanted(schemes: Sequence[str]) -> Iterator[tuple[str, str]]:
    for scheme in schemes:
        if scheme in ACTIVATIONS:
            yield from (("documented", scheme), ("stock", scheme))
        yield "hexport", scheme


def _make(case: Case, side: str, scheme: str, prepared: Path, options: argparse.Namespace) -> Made:
    folder = case.folder / f"{side}-{scheme}"
    if side == "hexport":
        return by_hexport(
            prepared,
            case.calibration(prepared),
            folder,
            scheme,
            options.limit,
            target=options.target,
            effort=options.effort,
            min_sqnr=AUTO_DB if scheme == "auto" else None,
        )
    if side == "stock":
        bare = without_metadata(prepared, case.folder / "bare.onnx")
        return by_stock(bare, case.calibration(bare), folder, scheme, options.limit)
    fixed = case.folder / "fixed.onnx"
    if not fixed.is_file():
        fix_shapes(case.source, case.shapes, fixed)
    return by_stock(fixed, case.calibration(fixed), folder, scheme, options.limit)


if __name__ == "__main__":
    main()
