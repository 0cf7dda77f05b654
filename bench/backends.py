"""The zoo through QNN's CPU backend and the NPU's compiler side by side: what each takes, and what it leaves.

    python bench/backends.py [--models a,b] [--target SM8650] [--toolchain NAME] [--without SIDE] [--resume]

QNN's CPU backend is in a toolchain: `hexport toolchain add onnxruntime-qnn==2.3.0`. The sides are that
backend (qnn-cpu), the NPU by the installed release (npu), and the NPU by the toolchain's release (old-npu).
Each is asked with ``hexport check`` in a process of its own; what QNN's CPU backend takes is then run on one
real input and compared with ONNX Runtime's CPU (``hexport verify``). JSON goes to bench/results after each
model, and --resume goes on from there. What fails is told in its row, with the reason below the table.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from arguments import chip, listed
from backends_report import NPU, OLD_NPU, QNN_CPU, SIDES, Answer, Left, Measured, Results, show
from command import run_hexport, why
from hexport import HexportError, zoo
from hexport.environments import registry

RESULTS = Path(__file__).parent / "results"
_NOTHING_WANTED = "-1000"
"""A threshold that everything meets: the figure is wanted, not a judgement."""


def main() -> None:
    """Ask, show, write."""
    options = _options()
    names = options.models or zoo.names()
    file = RESULTS / ("backends-some.json" if options.models else "backends.json")
    results = Results.begin(file, _settings(options), resume=options.resume)
    left = [name for name in names if not results.has(name)]
    for number, name in enumerate(left, 1):
        measured = _measure(name, options)
        results.add(measured)
        told = ", ".join(f"{side} {answer.kind}" for side, answer in measured.answers.items())
        print(f"[{number}/{len(left)}] {name}: {told}", file=sys.stderr, flush=True)
    show([run for run in results.runs if run.model in names], results.settings)
    print(f"written: {file.parent.name}/{file.name}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=listed(zoo.names()), metavar="A,B", help="all by default")
    parser.add_argument("--target", type=chip, default="SM8650")
    parser.add_argument("--toolchain", default="onnxruntime-qnn-2.3.0", metavar="NAME")
    parser.add_argument("--limit", type=float, default=1800.0, metavar="SECONDS", help="for each process")
    parser.add_argument("--without", type=listed(SIDES), default=[], metavar="A,B", help="leave these out")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What results of one file must have in common."""
    try:
        toolchain = registry.find(options.toolchain)
    except HexportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    here = {name: version(name) for name in ("onnxruntime", "onnxruntime-qnn")}
    there = {name: toolchain.packages.get(name, "") for name in here}
    return {"target": options.target, "here": here, "there": there, "without": options.without}


def _measure(name: str, options: argparse.Namespace) -> Measured:
    there, here = ["--toolchain", options.toolchain], ["--toolchain", "this"]
    chip_ = ["--target", options.target]
    asked = {
        QNN_CPU: ["--backend", "qnn-cpu", *there],
        NPU: [*chip_, *here],
        OLD_NPU: [*chip_, *there],
    }
    answers = {
        side: _check(name, arguments, options.limit)
        for side, arguments in asked.items()
        if side not in options.without
    }
    db, complaint = None, ""
    if QNN_CPU in answers and answers[QNN_CPU].taken:
        db, complaint = _run(name, asked[QNN_CPU], options.limit)
    return Measured(name, answers, db, complaint)


def _check(name: str, arguments: list[str], limit: float) -> Answer:
    # hexport's own limit ends the worker and says so; the outer one only keeps the benchmark going.
    timeout = ["--timeout", f"{limit:g}"]
    ended, document = run_hexport(["check", f"zoo:{name}", *arguments, *timeout], 1.5 * limit)
    if "nodes" not in document:
        return Answer(ended.seconds, failure=why(ended, document))
    return Answer(
        ended.seconds,
        taken=document["nodes"]["npu"],
        partitions=document["partitions"],
        macs_taken=document["macs"]["npu"],
        macs_left=document["macs"]["cpu"],
        left=tuple(Left(node["name"], node["op"], node["cause"]) for node in document["cpu_nodes"]),
    )


def _run(name: str, arguments: list[str], limit: float) -> tuple[float | str | None, str]:
    """dB of the worst output on one real input, and why there is none."""
    wanted = ["--samples", "1", "--min-sqnr", _NOTHING_WANTED, "--timeout", f"{limit:g}"]
    ended, document = run_hexport(["verify", f"zoo:{name}", *arguments, *wanted], 1.5 * limit)
    if "outputs" not in document:
        return None, why(ended, document)
    figures = [output["sqnr_db"] for output in document["outputs"]]
    numbers = [figure for figure in figures if isinstance(figure, int | float)]
    broken = [figure for figure in figures if isinstance(figure, str) and figure != "exact"]
    return (broken[0] if broken else min(numbers) if numbers else "exact"), ""


if __name__ == "__main__":
    main()
