"""Plain onnxruntime-qnn beside ``hexport check`` on the zoo: what each says, what really runs.

    python bench/check.py [--models ppocrv4-det,minilm] [--target SM8650]

Prints one table, its sums, and writes bench/results/check.json (check-some.json with --models). Each
session is created in a process of its own with a time limit, one after the other. Most of the time goes to
the simulator, which runs each model once to tell in which precision it computes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from check_report import Checked, Row, show
from fixed_shapes import fix_shapes
from hexport import facts, zoo
from plain_runs import PlainCall, PlainRun, one_line, run_plain

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run every model on every side."""
    arguments = _arguments()
    soc = facts.find_target(arguments.target)
    started = time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        workdir = Path(folder)
        header = [*_versions(soc), *_documented_calls(arguments.models[0], workdir, arguments.limit)]
        for number, name in enumerate(arguments.models, 1):
            (workdir / name).mkdir()
            rows.append(_compare(name, soc, workdir / name, arguments.limit))
            _tell(f"[{number}/{len(arguments.models)}] {name}: {_summary(rows[-1])}")
    print(*header, "", sep="\n")
    show(rows, soc.chip)
    print(f"  all of this took {time.perf_counter() - started:.0f} s")
    whole_zoo = arguments.models == zoo.names()
    _write(header, rows, RESULTS / ("check.json" if whole_zoo else "check-some.json"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=zoo.names(), metavar="A,B")
    parser.add_argument("--target", default="SM8650")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for each process")
    return parser.parse_args()


def _versions(soc: facts.Soc) -> list[str]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnxruntime-qnn", "hexport"))
    return [f"{packages}; hexport's target {soc.chip} (soc_model {soc.soc_model}, v{soc.htp_arch})"]


def _documented_calls(name: str, workdir: Path, limit: float) -> list[str]:
    """What the documentation's other calls give today, tried on the first model."""
    by_name = "InferenceSession(model, providers=['QNNExecutionProvider'], provider_options=[…])"
    calls = {
        f"{by_name}, letter by letter": PlainCall("name"),
        "the same after register_execution_provider_library()": PlainCall("name-registered"),
        "add_provider_for_devices(), with the optional session.disable_cpu_ep_fallback=1": PlainCall(
            session_options={"session.disable_cpu_ep_fallback": "1"}
        ),
    }
    lines = [f"documented calls that the table does not use, on {name}:"]
    for described, call in calls.items():
        run = run_plain(zoo.get(name), None, call, workdir, limit)
        lines.append(f"    {described}\n        → {_outcome(run)}")
    used = "the table uses add_provider_for_devices(devices, {'backend_type': 'htp'}), no soc_model"
    return [*lines, used]


def _outcome(run: PlainRun) -> str:
    if run.outcome != "loaded":
        return f"{run.outcome}: {run.error}"
    said = "; ".join(one_line(text) for text in run.warnings) or "none"
    return f"loads; get_providers() says {run.says}; warnings: {said}"


def _compare(name: str, soc: facts.Soc, workdir: Path, limit: float) -> Row:
    model, fixed, feeds = zoo.get(name), workdir / "fixed.onnx", workdir / "feeds.npz"
    complaint = fix_shapes(model, zoo.entry(name).input_shapes, fixed)
    arrays: dict[str, Any] = zoo.inputs(name, count=1, split="test")[0]
    np.savez(feeds, **arrays)
    known = PlainCall(
        provider_options={
            "soc_model": str(soc.soc_model),
            "enable_framework_op_trace": "1",
            "framework_op_trace_dir": str(workdir),
        }
    )
    return Row(
        name,
        as_is=run_plain(model, feeds, PlainCall(), workdir, limit),
        fixed=run_plain(fixed, feeds, PlainCall(), workdir, limit),
        tool_complaint=complaint,
        checked=_check(name, soc, limit),
        confirmed=run_plain(fixed, feeds, known, workdir, limit),
    )


def _check(name: str, soc: facts.Soc, limit: float) -> Checked:
    """``hexport check --json``, the command as a user has it."""
    command = [sys.executable, "-m", "hexport", "check", f"zoo:{name}", "--target", soc.chip, "--json"]
    started = time.perf_counter()
    # Its own limit is the one under test; ours only keeps the benchmark going if that does not hold.
    try:
        done = subprocess.run(
            [*command, "--timeout", f"{limit:g}"],
            capture_output=True,
            text=True,
            timeout=3 * limit,
            check=False,
        )
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Checked(time.perf_counter() - started, {}, f"no answer in {3 * limit:g} s")
    except ValueError:
        return Checked(time.perf_counter() - started, {}, one_line(done.stderr[-300:]) or "no document")
    return Checked(time.perf_counter() - started, document)


def _summary(row: Row) -> str:
    return (
        f"as is {row.as_is.kind}, fixed {row.fixed.kind}, hexport {row.checked.kind} "
        f"({row.checked.seconds:.1f} s), confirmed {row.confirmed.kind}"
    )


def _write(header: list[str], rows: list[Row], file: Path) -> None:
    def plain(run: PlainRun) -> dict[str, object]:
        return {**asdict(run), "kind": run.kind, "in_fp32": run.in_fp32}

    document = {
        "schema_version": 1,
        "header": header,
        "models": [
            {
                "model": row.model,
                "as_is": plain(row.as_is),
                "fixed": plain(row.fixed),
                "tool_complaint": row.tool_complaint,
                "hexport": {**asdict(row.checked), "kind": row.checked.kind, "word_held": row.word_held},
                "confirmed": plain(row.confirmed),
            }
            for row in rows
        ],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    _tell(f"written: {file.parent.name}/{file.name}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
