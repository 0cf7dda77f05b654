"""What ``core_install.py`` runs in the venv: load a package, run it everywhere, say what was imported."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hexport


def main() -> None:
    """``PACKAGE SAMPLE.npz RESULT.json``; the sample has the input ``x`` and the original's answer ``y``."""
    package, file, result = sys.argv[1:]
    with np.load(file, allow_pickle=False) as arrays:
        x, expected = arrays["x"], arrays["y"]
    rows = [
        _one(package, backend, isolate, x, expected)
        for backend in ("cpu", "simulator")
        for isolate in (False, True)
    ]
    found = {"runs": rows, "modules": sorted({name.split(".")[0] for name in sys.modules})}
    # Not to stdout, where native code has its say, too.
    Path(result).write_text(json.dumps(found), "utf-8")


def _one(package: str, backend: str, isolate: bool, x: Any, expected: Any) -> dict[str, Any]:
    started = time.perf_counter()
    with hexport.load(package, backend, isolate=isolate, say=lambda _: None) as session:
        y = session.run({"x": x})["y"]
        took = time.perf_counter() - started
        places = session.describe().runs
    noise = float(((y - expected) ** 2).sum())
    db = None if noise == 0 else round(10 * float(np.log10(float((expected**2).sum()) / noise)), 1)
    return {
        "backend": backend,
        "isolate": isolate,
        "served": places,
        "db": db,
        "load_and_first_run_s": round(took, 2),
    }


if __name__ == "__main__":
    main()
