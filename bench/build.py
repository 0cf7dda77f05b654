"""The zoo through ``hexport build``, and the bare steps of it done by hand, in one run.

    python bench/build.py [--models a,b] [--schemes auto,fp16] [--target SM8650] [--resume]

Each model is built from nothing with an empty cache, and again with what the first build kept: ``auto`` with
the zoo's calibration inputs, ``fp16`` without any. By hand is what ONNX Runtime's documentation says: shapes
fixed, its recipe for QNN (16-bit activations, 8-bit weights; not for fp16), ModelCompiler; each step in a
process of its own, and nothing of it is verified. Models with dims to vary are also built in several buckets
and in the largest alone. Times are wall times, so nothing else should run. JSON goes to bench/results after
each model, and --resume goes on from there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arguments import chip, listed
from build_report import Measured, Results, show
from command import run_hexport, why
from fixed_shapes import fix_shapes
from hexport import facts, zoo
from hexport.storage.place import zoo_folder
from plain_runs import one_line
from quantize_sides import by_stock, write_samples
from timed_child import Ended, run_timed

RESULTS = Path(__file__).parent / "results"
COMPILE = Path(__file__).with_name("plain_compile.py")
SCHEMES = ("auto", "fp16")
BY_HAND = "16a8w"
"""What stands beside ``auto``: the precision that the stock recipe is mostly used with."""
CALIBRATION = 8
# Model -> the dim that is varied, its sizes, and what the other dims are.
BUCKETS: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "minilm": ("sequence", (16, 32, 64), ("batch=1",)),
    "ppocrv4-rec": ("p2o.DynamicDimension.1", (160, 320), ("p2o.DynamicDimension.0=1", "x.2=48")),
}
_OK, _SHORT = 0, 1
"""Exit codes with which ``hexport build`` leaves a package."""


def main() -> None:
    """Measure, show, write."""
    options = _options()
    names = options.models or zoo.names()
    file = RESULTS / ("build-some.json" if options.models else "build.json")
    results = Results.begin(file, _settings(options), resume=options.resume)
    for name in names:
        for scheme in options.schemes:
            if not results.has(name, scheme):
                print(f"{name} {scheme} …", file=sys.stderr, flush=True)
                results.add(_measure(name, scheme, options))
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
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What results of one file must have in common."""
    packages = {name: version(name) for name in ("onnxruntime", "onnxruntime-qnn")}
    return {**packages, "target": options.target, "calibration_samples": CALIBRATION}


def _measure(name: str, scheme: str, options: argparse.Namespace) -> Measured:
    source = zoo.get(name)
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as temporary:
        folder = Path(temporary)
        calib = ["--calib", f"zoo:{name}"] if scheme == "auto" else []
        with _empty_cache(folder):
            first, document = _build(name, folder / "pkg", [*calib], options)
            figures: dict[str, Any] = {"onnx_bytes": source.stat().st_size, "first_seconds": first.seconds}
            if first.code not in (_OK, _SHORT):
                return Measured(name, scheme, failure=why(first, document), **figures)
            second, again = _build(name, folder / "pkg", [*calib], options)
            buckets = _buckets(name, calib, folder, options) if name in BUCKETS else {}
        figures |= _by_hand(name, source, scheme, folder, options)
    return Measured(
        name,
        scheme,
        met=document["met"],
        chosen=document["scheme"],
        lowest_db=_lowest(document),
        package_bytes=document["bytes_after"],
        binary_bytes=_binaries(document),
        peak_bytes=first.peak_bytes,
        second_seconds=second.seconds,
        second_made=sum(again["cache"]["made"].values()),
        buckets=buckets,
        **figures,
    )


@contextmanager
def _empty_cache(folder: Path) -> Any:
    """Steps begin from nothing; the zoo's files are not what is measured."""
    root = folder / "cache"
    root.mkdir()
    real = zoo_folder()
    (root / "zoo").symlink_to(real, target_is_directory=True)
    before = os.environ.get("HEXPORT_CACHE")
    os.environ["HEXPORT_CACHE"] = str(root)
    try:
        yield
    finally:
        del os.environ["HEXPORT_CACHE"]
        if before is not None:
            os.environ["HEXPORT_CACHE"] = before


def _build(
    name: str, output: Path, words: Sequence[str], options: argparse.Namespace
) -> tuple[Ended, dict[str, Any]]:
    command = ["build", f"zoo:{name}", "-o", str(output), "--target", options.target, *words]
    return run_hexport(command, options.limit)


def _lowest(document: Mapping[str, Any]) -> float | str | None:
    found = [output["sqnr_db"] for one in document["verification"] for output in one["outputs"]]
    numbers = [value for value in found if not isinstance(value, str)]
    if "broken" in found:
        return "broken"
    return min(numbers) if numbers else next(iter(found), None)


def _binaries(document: Mapping[str, Any]) -> int:
    return sum(one["bytes"] for one in document["artefacts"] if one["role"] == "context_binary")


def _buckets(name: str, calib: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All sizes in one package, and the largest alone."""
    dim, sizes, others = BUCKETS[name]
    fixed = [word for other in others for word in ("--dim", other)]
    listed = ",".join(map(str, sizes))
    several, all_of_them = _build(
        name, folder / "all", [*calib, *fixed, "--bucket", f"{dim}={listed}"], options
    )
    if several.code not in (_OK, _SHORT):
        return {"sizes": listed, "failure": why(several, all_of_them)}
    one, largest = _build(name, folder / "one", [*calib, *fixed, "--dim", f"{dim}={max(sizes)}"], options)
    if one.code not in (_OK, _SHORT):
        return {"sizes": listed, "failure": why(one, largest)}
    return {
        "sizes": listed,
        "all_bytes": _binaries(all_of_them),
        "largest_bytes": _binaries(largest),
        "seconds": several.seconds,
        "padding": all_of_them["padding"],
    }


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
