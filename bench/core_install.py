"""A package loaded and run where nothing but hexport's core is installed.

    python bench/core_install.py [--keep FOLDER]

Makes a venv, installs this project into it without extras, and there loads and runs a package that was built
beforehand: on the CPU and on the simulator, in the process and in a worker. Prints what is installed, what
was imported and how close the answers are. JSON goes to bench/results/core_install.json. Exit code 1 when
anything that only building needs is there, or an answer is not right. Needs a package index, and 600 MB for
the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from runtime_models import SHAPE, built, product

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "core_install.json"
BUILD_TIME = ("onnx", "onnx_ir", "onnxscript", "onnxslim", "torch", "PIL")
"""Modules that make models and not run them."""
LEAST_DB = 45.0
"""What fp16 gives at least."""


def main() -> int:
    """Build, install, run, show."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="hexport-core-") as folder:
        place = Path(folder)
        package, sample = _package(place)
        home = options.keep or place / "venv"
        started = time.perf_counter()
        python = _installed(home)
        took = time.perf_counter() - started
        packages = _packages(python)
        found = _run(python, package, sample)
        size = sum(file.lstat().st_size for file in home.rglob("*")) / 2**20
    document = _judged(found, packages)
    document |= {"install_s": round(took, 1), "venv_mb": round(size)}
    _show(document)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(f"written: {RESULTS.parent.name}/{RESULTS.name}", file=sys.stderr)
    return 0 if document["holds"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="put the venv there and leave it")
    return parser.parse_args()


def _package(folder: Path) -> tuple[Path, Path]:
    """Made here, where everything is installed; and an input with the original's answer."""
    model = product(folder / "product.onnx")
    package, sample = built(model, folder), folder / "sample.npz"
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    np.savez(sample, x=x, y=session.run(None, {"x": x})[0])
    return package, sample


def _installed(home: Path) -> Path:
    venv.create(home, with_pip=True, clear=True)
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
    subprocess.run(command, check=True)
    return python


def _packages(python: Path) -> dict[str, str]:
    command = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {one["name"]: one["version"] for one in listed}


def _run(python: Path, package: Path, sample: Path) -> dict[str, Any]:
    script, result = Path(__file__).with_name("core_install_run.py"), package.parent / "result.json"
    # Nothing of this environment, nor of the folder of the script, reaches the other or its workers.
    settings = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    settings["HEXPORT_CACHE"] = str(package.parent / "cache")
    done = subprocess.run(
        [str(python), "-I", str(script), str(package), str(sample), str(result)],
        capture_output=True,
        text=True,
        check=False,
        cwd=package.parent,
        env=settings,
    )
    if done.returncode:
        sys.exit(f"it does not run with the core alone:\n{done.stderr}")
    found: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return found


def _judged(found: dict[str, Any], packages: dict[str, str]) -> dict[str, Any]:
    imported = [name for name in BUILD_TIME if name in found["modules"]]
    names = {name.lower().replace("-", "_") for name in packages}
    there = [name for name in ("pillow", *BUILD_TIME) if name.lower() in names]
    right = all(run["db"] is None or run["db"] >= LEAST_DB for run in found["runs"])
    # The simulator computes in fp16: an answer like the CPU's own would be the CPU's.
    on_npu = all(run["db"] is not None for run in found["runs"] if run["backend"] == "simulator")
    holds = not imported and not there and right and on_npu and len(found["runs"]) == 4
    return {
        "schema_version": 1,
        "python": sys.version.split()[0],
        "installed": packages,
        "build_time_packages": there,
        "build_time_modules_imported": imported,
        "runs": found["runs"],
        "holds": holds,
    }


def _show(document: dict[str, Any]) -> None:
    listed = ", ".join(f"{name} {version}" for name, version in document["installed"].items())
    print(f"installed in {document['install_s']} s, {document['venv_mb']} MB: {listed}")
    print(f"{'backend':12}{'worker':8}{'dB':>8}{'load + first run':>20}  served")
    for run in document["runs"]:
        db = "exact" if run["db"] is None else f"{run['db']:.1f}"
        worker = "yes" if run["isolate"] else "no"
        took = f"{run['load_and_first_run_s']:.2f} s"
        print(f"{run['backend']:12}{worker:8}{db:>8}{took:>20}  {run['served']}")
    for what in ("build_time_packages", "build_time_modules_imported"):
        print(f"{what.replace('_', ' ')}: {', '.join(document[what]) or 'none'}")
    print("holds" if document["holds"] else "does NOT hold")


if __name__ == "__main__":
    sys.exit(main())
