"""The ONNX standard's operator tests through `hexport.onnxruntime`, the documented API.

    python bench/documented_api.py [--target SM8650] [--only averagepool] [--hard] [--every 1]

Each test that ONNX Runtime's CPU runs becomes a session with `providers=["QNNExecutionProvider"]`, as a
program written from the documentation makes it, and is run once on the test's own inputs. Sessions are made
in a process of their own, so that a crash is counted and not suffered. Prints the counts and every test that
is not right; a run of all tests writes bench/results/documented_api.json. The API prepares each model, on
random inputs: the test's own ones are only seen by `run`. Exit code 1 when one is wrong, kills the process or
is on the CPU without a word; an exception is neither.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from conformance_cases import Case, write_cases
from conformance_runs import BAD, ENOUGH_DB
from hexport import facts
from hexport.preparation.nearness import nearness
from hexport.toolchain import JobFailed, Limits, Worker, WorkerError
from hexport.toolchain.serving import JobError, serve

RESULTS = Path(__file__).parent / "results" / "documented_api.json"
_WORKER = "HEXPORT_BENCH_WORKER"
"""Set for the process that makes the sessions, which is this file once more."""
LABELS = {
    "right": f"right (≥ {ENOUGH_DB:g} dB or equal), some or all of it on the NPU",
    "cpu": "right, all of it on the CPU, with a warning",
    "refused": "an exception, though the CPU runs it",
    "hidden": "on the CPU without a warning",
    "wrong": "silently wrong",
    "killed": "kills the process",
}


@dataclass(frozen=True)
class Row:
    """What became of one test."""

    test: str
    op: str
    kind: str
    """One of ``LABELS``."""
    db: float | None = None
    error: str = ""
    seconds: float = 0.0


def run_case(arguments: dict[str, Any]) -> dict[str, Any]:
    """The job: the test on the CPU, then by the documented API."""
    import hexport.onnxruntime as onnxruntime

    onnxruntime.set_default_logger_severity(4)
    with np.load(arguments["inputs"], allow_pickle=False) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    try:
        expected = _run(onnxruntime, arguments["model"], feeds, ["CPUExecutionProvider"])[1]
    except Exception as error:
        raise JobError("CpuCannot", str(error)) from error
    if any(not isinstance(result, np.ndarray) or result.dtype.kind not in "biuf" for result in expected):
        raise JobError("CpuCannot", "an output is not a tensor of numbers")
    provider = ("QNNExecutionProvider", {"backend_path": "QnnHtp.dll", "soc_model": arguments["soc_model"]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            session, got = _run(onnxruntime, arguments["model"], feeds, [provider])
        except Exception as error:
            raise JobError("Refused", f"{type(error).__name__}: {error}") from error
    pairs = ({str(i): result for i, result in enumerate(results)} for results in (expected, got))
    worst = nearness(*pairs)
    said = any(issubclass(warning.category, onnxruntime.CpuFallbackWarning) for warning in caught)
    on_cpu = session.get_providers() == ["CPUExecutionProvider"]
    return {"db": None if worst == np.inf else worst, "on_cpu": on_cpu, "said": said}


def _run(
    onnxruntime: Any, model: str, feeds: dict[str, np.ndarray], providers: list[Any]
) -> tuple[Any, list[Any]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    return session, session.run(None, feeds)


def main() -> int:
    """Run the tests one after the other; 1 when one is wrong, kills the process or hides the CPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="SM8650")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests with this in their name")
    parser.add_argument("--hard", action="store_true", help="only those that plain onnxruntime-qnn fails")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth of them")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, for one test")
    asked = parser.parse_args()
    soc, started = facts.find_target(asked.target), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        cases = write_cases(Path(folder), asked.only)
        if asked.hard:
            hard = _hard()
            cases = [case for case in cases if case.name in hard]
        cases = cases[:: asked.every]
        rows = [row for case in cases if (row := _row(case, soc, Path(folder), asked.seconds)) is not None]
    counts = Counter(row.kind for row in rows)
    print(f"{len(rows)} of {len(cases)} tests run on ONNX Runtime's CPU; of these, by the documented API")
    for kind, label in LABELS.items():
        print(f"{label:60}{counts[kind]:6}")
    for row in (row for row in rows if row.kind not in ("right", "cpu")):
        print(f"  {row.kind:8} {row.test}  {'' if row.db is None else f'{row.db:.0f} dB'} {row.error[:150]}")
    print(f"{soc.chip}; {time.perf_counter() - started:.0f} s")
    if not (asked.only or asked.hard or asked.every > 1):
        document = {
            "schema_version": 1,
            "target": soc.chip,
            "packages": {name: version(name) for name in ("onnx", "onnxruntime", "onnxruntime-qnn")},
            "counts": counts,
            "tests": [*map(_plain, rows)],
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return int(any(counts[kind] for kind in ("hidden", "wrong", "killed")))


def _hard() -> set[str]:
    """By what onnx_conformance.py measured."""
    tests = json.loads((RESULTS.parent / "conformance.json").read_text("utf-8"))["tests"]
    return {test["test"] for test in tests if test["plain"]["kind"] in BAD}


def _row(case: Case, soc: facts.Soc, folder: Path, seconds: float) -> Row | None:
    here = {"PYTHONPATH": str(Path(__file__).parent), _WORKER: "1"}
    arguments = {"model": str(case.model), "inputs": str(case.inputs), "soc_model": str(soc.soc_model)}
    started = time.perf_counter()

    def row(kind: str, db: float | None = None, error: str = "") -> Row:
        took = round(time.perf_counter() - started, 1)
        print(f"{kind:8} {case.name} ({took} s)", file=sys.stderr)
        return Row(case.name, case.op, kind, db, " ".join(error.split()), took)

    try:
        with Worker(
            "documented_api", folder / "native.log", limits=Limits(seconds=seconds), environment=here
        ) as worker:
            reply = worker.call("run_case", arguments)
    except JobFailed as error:
        return row("refused", error=error.text) if error.kind == "Refused" else None
    except WorkerError as error:
        return row("killed", error=error.what)
    db = reply["db"]
    if db is not None and db < ENOUGH_DB:
        return row("wrong", db)
    if reply["on_cpu"]:
        return row("cpu" if reply["said"] else "hidden", db)
    return row("right", db)


def _plain(row: Row) -> dict[str, object]:
    return {
        **asdict(row),
        "db": None if row.db is None else "-inf" if row.db == -np.inf else round(row.db, 1),
    }


if __name__ == "__main__":
    if _WORKER in os.environ:
        serve({"run_case": run_case})
    else:
        sys.exit(main())
