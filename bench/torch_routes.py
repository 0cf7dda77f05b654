"""PyTorch models by the two routes of ``hexport build``, to a package and to a ``.pte``, in one run.

    python bench/torch_routes.py [--models a,b] [--schemes fp16,16a8w] [--routes package,pte] [--resume]

The models are factories of torch_route_models.py, and each drives both routes. A build is a process of its
own with an empty cache. What it made then runs on Qualcomm's simulator on inputs that gave no range, the same
for both routes, and is compared with the module in eager mode. The second route needs a toolchain:
`hexport toolchain add executorch==1.5.1`. Times are wall times, so nothing else should run; the processors'
own time stands beside them.

JSON goes to bench/results after each row, and --resume goes on from there. What fails is told in its row, and
the next has its turn. 16a8w is asked for 30 dB, as a user would who wants them (--min-sqnr 30). Exit code 1:
in 16a8w something is below 30 dB on the worst test input, that the target supports.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from arguments import chip, listed, positive
from command import run_hexport, why
from hexport import HexportError
from hexport.executorch.pte.toolchain import find_executorch
from hexport.observe.decibels import finite
from hexport.storage.keys import own_code
from hexport.storage.place import zoo_folder
from plain_runs import one_line
from torch_route_report import ENOUGH_DB, GATED, OURS, PACKAGE, ROUTES, Measured, Placed, Results, show

RESULTS = Path(__file__).parent / "results"
FACTORIES = Path(__file__).with_name("torch_route_models.py")
NAMES = ("cnn", "mobilenet", "encoder", "lstm", "gru", "minilm", "efficientnet_lite0")
SCHEMES = ("fp16", "8a8w", "16a8w")
DONE = (0, 1)
"""1: made, and short of what was asked for."""
_TOLD = 4
Sample = Mapping[str, Any]


def main() -> int:
    """Measure, show, write."""
    options = _options()
    some = set(options.models) != set(NAMES)
    file = RESULTS / ("torch_routes-some.json" if some else "torch_routes.json")
    results = Results.begin(file, _settings(options), resume=options.resume)
    wanted = [
        (name, scheme, route)
        for scheme in options.schemes
        for name in options.models
        for route in options.routes
    ]
    left = [each for each in wanted if not results.has(*each)]
    # Processes, because what the processors did for a build is counted by the process that waits for it; and
    # fresh ones, because torch does not survive a fork.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(_prepare, dict.fromkeys(name for name, _, _ in left)))
        for done in as_completed([pool.submit(_measured, *each, options) for each in left]):
            measured = done.result()
            results.add(measured)
            told = measured.failure or f"{measured.db} dB, {measured.seconds:.0f} s"
            who = f"{measured.model} {measured.scheme} {measured.route}"
            print(f"{who}: {told}", file=sys.stderr, flush=True)
    runs = {results.key(run): run for run in results.runs}
    shown = [run for run in map(runs.get, _by_model(wanted)) if run is not None]
    show(shown)
    print(f"written: {file.parent.name}/{file.name}", file=sys.stderr)
    return int(any(run.short for run in shown))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=listed(NAMES), default=list(NAMES), metavar="A,B")
    parser.add_argument("--schemes", type=listed(SCHEMES), default=list(SCHEMES), metavar="A,B")
    parser.add_argument("--routes", type=listed(ROUTES), default=list(ROUTES), metavar="A,B")
    parser.add_argument("--target", type=chip, default="SM8650")
    parser.add_argument("--samples", type=positive, default=4, help="test inputs of each model")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS", help="for each process")
    parser.add_argument(
        "--jobs", type=positive, default=1, help="builds at a time; more than 1 spoils the times"
    )
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What results of one file must have in common."""
    try:
        toolchain = find_executorch(None).name if "pte" in options.routes else ""
    except HexportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    packages = {name: version(name) for name in ("torch", "onnxruntime-qnn")}
    return {**packages, "executorch": toolchain, "target": options.target, "samples": options.samples}


def _by_model(wanted: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return sorted(wanted, key=lambda each: (NAMES.index(each[0]), SCHEMES.index(each[1])))


def _prepare(name: str) -> None:
    """Trained, or fetched, before any build is timed."""
    from torch_route_models import MODELS

    MODELS[name]()


def _measured(name: str, scheme: str, route: str, options: argparse.Namespace) -> Measured:
    """The measurement, or why there is none: one row must not end the run."""
    try:
        return _measure(name, scheme, route, options)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others have their turn
        words = one_line(f"{type(error).__name__}: {error}")
        return Measured(name, scheme, route, seconds=0.0, failure=f"{OURS}: {words}")


def _measure(name: str, scheme: str, route: str, options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="hexport-bench-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        output = folder / ("package" if route == PACKAGE else "model.pte")
        command = ["build", f"{FACTORIES}:{name}", "-o", str(output), "--target", options.target]
        command += ["--scheme", scheme, *([] if route == PACKAGE else ["--format", "pte"])]
        command += ["--min-sqnr", f"{ENOUGH_DB:g}"] if scheme == GATED else []
        before = _children_seconds()
        ended, document = run_hexport(
            command, options.limit, {"HEXPORT_CACHE": str(_empty_cache(folder / "cache"))}
        )
        after = _children_seconds()
        figures: dict[str, Any] = {
            "seconds": ended.seconds,
            "cpu_seconds": None if before is None or after is None else after - before,
            "code": own_code()[:12],
        }
        if ended.code not in DONE or not output.exists():
            return Measured(name, scheme, route, failure=why(ended, document), **figures)
        figures |= _package(output, options) if route == PACKAGE else _pte(output)
        found = _decibels(name, output, route, options)
        return Measured(name, scheme, route, db=finite(median(found)), worst_db=finite(min(found)), **figures)


def _empty_cache(root: Path) -> Path:
    """Steps begin from nothing; the zoo's files are not what is measured."""
    root.mkdir()
    (root / "zoo").symlink_to(zoo_folder(), target_is_directory=True)
    return root


def _children_seconds() -> float | None:
    """Of all processes that ended and were waited for, and of theirs; None: the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _package(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Sizes, and the placement in the package's own report."""
    report = json.loads((folder / "report.json").read_bytes())
    artefacts = json.loads((folder / "hexport.json").read_bytes())["artefacts"]
    models = [model for made in report["compiled"][options.target]["artefacts"] for model in made["models"]]
    left = [node for model in models for node in model["cpu_nodes"]]
    return {
        "placed": Placed(
            sum(model["nodes"]["npu"] for model in models),
            sum(model["nodes"]["cpu"] for model in models),
            sum(model["macs"]["npu"] for model in models),
            sum(model["macs"]["cpu"] for model in models),
            sum(model["partitions"] for model in models),
            tuple(one_line(f"{node['op']} {node['name']}: {node['reason']}") for node in left[:_TOLD]),
        ),
        "binary_bytes": sum(one["bytes"] for one in artefacts if one["role"] == "context_binary"),
        "file_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


def _pte(file: Path) -> dict[str, Any]:
    """The same, from the file beside the .pte."""
    sidecar = json.loads(file.with_name(f"{file.name}.json").read_bytes())
    (method,) = sidecar["methods"]
    delegates, cpu = method["partition"]["delegates"], method["partition"]["cpu"]
    return {
        "placed": Placed(
            sum(one["nodes"] for one in delegates),
            len(cpu),
            sum(one["macs"] for one in delegates),
            sum(node["macs"] for node in cpu),
            len(delegates),
            tuple(one_line(f"{node['op']} in {node['module']}: {node['reason']}") for node in cpu[:_TOLD]),
        ),
        "binary_bytes": sum(one["bytes"] for one in delegates),
        "file_bytes": file.stat().st_size,
    }


def _decibels(name: str, output: Path, route: str, options: argparse.Namespace) -> list[float]:
    """Of every sample, the worst output, on the simulator beside eager."""
    from hexport.verification.measuring import find

    samples, expected = _eager(name, options.samples)
    got = _run_package(output, samples) if route == PACKAGE else _run_pte(output, samples)
    pairs = zip(expected, got, strict=True)
    return [min(one.sqnr_db for one in find([wanted], [have])) for wanted, have in pairs]


@cache
def _eager(name: str, count: int) -> tuple[list[Sample], list[Sample]]:
    """The test inputs, and what PyTorch gives for them."""
    import torch

    from torch_route_models import MODELS, test_inputs

    module, _, extras = MODELS[name]()
    samples = test_inputs(name, count)
    expected = []
    with torch.no_grad():
        for sample in samples:
            found = module(**sample)
            found = found if isinstance(found, tuple) else (found,)
            expected.append(
                {key: one.numpy() for key, one in zip(extras["output_names"], found, strict=True)}
            )
    return [{key: one.numpy() for key, one in sample.items()} for sample in samples], expected


def _run_package(folder: Path, samples: Sequence[Sample]) -> Sequence[Sample]:
    import hexport

    # Native code may die; and not on the packaged CPU model, which would be exact and prove nothing.
    with hexport.load(folder, backend="simulator", isolate=True, allow_cpu=False) as session:
        return [session.run(sample) for sample in samples]


def _run_pte(file: Path, samples: Sequence[Sample]) -> Sequence[Sample]:
    from hexport.executorch.running.loading import load_pte

    return load_pte(file).run(samples).outputs


if __name__ == "__main__":
    sys.exit(main())
