"""What the runtime costs, what its isolation costs, and what it survives; both sides of each in one run.

    python bench/runtime.py [--only overhead,transport,…] [--models a,b] [--requests 1000] [--kills 20]

overhead   session.run beside a bare ONNX Runtime session on the same context model, in turns
transport  10 MB through an isolated session beside the same model behind a pipe of JSON and base64
load       loading the package of each zoo model beside compiling that model
kills      requests by several threads while the worker is killed at random
leak       loading, running and closing the zoo's packages over and over: memory, processes, shared files

Prints a line for each figure, and JSON goes to bench/results/runtime.json (runtime-some.json for some parts
or models). Packages of the zoo are built, or come from hexport's cache; nothing else needs a network. Linux
only. Exit code 1 when something does not hold.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arguments import listed
from hexport import zoo
from runtime_speed import loading, overhead, transport
from runtime_survival import kills, leak

RESULTS = Path(__file__).parent / "results"
PARTS = ("overhead", "transport", "load", "kills", "leak")


def main() -> int:
    """Measure, show, write."""
    options = _options()
    models = options.models or list(zoo.names())
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        place = Path(folder)
        measures: dict[str, Callable[[], dict[str, Any]]] = {
            "overhead": lambda: overhead(place, options.runs),
            "transport": lambda: transport(place, options.runs),
            "load": lambda: loading(place, models),
            "kills": lambda: kills(place, options.requests, options.kills),
            "leak": lambda: leak(place, models),
        }
        packages = {name: version(name) for name in ("hexport", "onnxruntime", "onnxruntime-qnn")}
        results: dict[str, Any] = {
            "schema_version": 1,
            "packages": packages,
            "python": platform.python_version(),
        }
        for part in options.only:
            results[part] = measures[part]()
            _show(part, results[part])
    whole = options.only == list(PARTS) and not options.models
    file = RESULTS / ("runtime.json" if whole else "runtime-some.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(f"written: {RESULTS.name}/{file.name}", file=sys.stderr)
    return 0 if all(results[part].get("holds", True) for part in options.only) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=listed(PARTS), default=list(PARTS), metavar="A,B")
    parser.add_argument("--models", type=listed(tuple(zoo.names())), default=[], metavar="A,B")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2000)
    return parser.parse_args()


def _show(part: str, result: dict[str, Any]) -> None:
    held = {True: "holds", False: "does NOT hold"}.get(result.get("holds"), "")  # type: ignore[call-overload]
    print(f"{part}  {held}")
    for name, value in result.items():
        if isinstance(value, dict) and value:
            print(f"  {name:24}" + "  ".join(f"{key} {one}" for key, one in value.items()))
        elif name != "holds" and not isinstance(value, dict):
            print(f"  {name:24}{value}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
