"""The ONNX standard's operator tests on plain onnxruntime-qnn, and with hexport.

    python bench/onnx_conformance.py [--target SM8650] [--only averagepool] [--jobs 2]

Every test that ONNX Runtime's CPU runs is run on the NPU's simulator as it is, and once more after hexport's
rules if one applies; what is still not right goes the rest of `hexport prepare`'s way: clean-up, and pins of
what is to blame to the CPU. Tests of random operators are left out: two runs of them differ by design.
Prints the counts and every test that is not right, and writes bench/results/conformance.json. A test that
kills its process costs a new process and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from conformance_cases import RANDOM, Case, write_cases
from conformance_hexport import run_hexport
from conformance_runs import BAD, ENOUGH_DB, OUTCOMES, Outcome, Runner
from hexport import facts
from plain_runs import one_line

RESULTS = Path(__file__).parent / "results" / "conformance.json"
LABELS = {
    "right": f"on the NPU, right (≥ {ENOUGH_DB:g} dB or equal)",
    "wrong": "on the NPU, silently wrong",
    "failed": "fails, though the CPU runs it",
    "killed": "kills the process, though the CPU runs it",
    "cpu": "stays on the CPU",
}


@dataclass(frozen=True)
class Row:
    """One test on both sides."""

    test: str
    op: str
    plain: Outcome
    hexport: Outcome
    rules: tuple[str, ...]
    """The rules that changed the model; without any, and without what follows, the two sides are one run."""
    cleaned: bool
    """The rules were not enough; the clean-up came first."""
    pins: tuple[str, ...]
    """Nor was that: these operators are kept on the CPU, and why."""


def main() -> None:
    """Run every test on both sides."""
    arguments = _arguments()
    soc = facts.find_target(arguments.target)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        cases = write_cases(Path(folder), arguments.only)
        shares = [cases[i :: arguments.jobs] for i in range(arguments.jobs)]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            done = pool.map(lambda share: _run_share(share, soc), shares)
            rows = sorted((row for share in done for row in share), key=lambda row: (row.op, row.test))
    _show(rows, len(cases))
    print(f"\n{soc.chip}, {_versions()}; all of this took {time.perf_counter() - started:.0f} s")
    if not arguments.only:
        _write(rows, soc)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="SM8650")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests with this in their name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="worker processes at a time")
    return parser.parse_args()


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "onnxruntime-qnn"))


def _run_share(cases: Sequence[Case], soc: facts.Soc) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
        workdir = Path(folder)
        with Runner(workdir / "native.log", soc.soc_model) as runner:
            for number, case in enumerate(cases, 1):
                if number % 100 == 0:
                    print(f"{number} of {len(cases)}", file=sys.stderr)
                if (row := _run(case, runner, workdir, soc)) is not None:
                    rows.append(row)
    return rows


def _run(case: Case, runner: Runner, workdir: Path, soc: facts.Soc) -> Row | None:
    expected = workdir / "expected.npz"
    if not runner.on_cpu(case.model, case.inputs, expected):
        return None
    plain = runner.on_npu(case.model, case.inputs, expected)
    result = run_hexport(case, plain, expected, runner, soc)
    return Row(case.name, case.op, plain, result.outcome, result.rules, result.cleaned, result.pins)


def _show(rows: Sequence[Row], written: int) -> None:
    print(f"{len(rows)} of {written} tests run on ONNX Runtime's CPU; of these")
    print(f"(random operators are left out: {', '.join(sorted(RANDOM))}, Dropout in training)\n")
    print(f"{'':44}{'plain':>8}{'hexport':>9}")
    sides: tuple[Callable[[Row], Outcome], ...] = (lambda row: row.plain, lambda row: row.hexport)
    counts = [Counter(side(row).kind for row in rows) for side in sides]
    for kind in OUTCOMES:
        print(f"{LABELS[kind]:44}{counts[0][kind]:8}{counts[1][kind]:9}")
    whole = [sum(side(row).kind == "right" and side(row).whole for row in rows) for side in sides]
    print(f"{'every node on the NPU, right':44}{whole[0]:8}{whole[1]:9}")
    for name, side in zip(("plain onnxruntime-qnn", "hexport"), sides, strict=True):
        print(f"\n{name}: not right, by operator")
        _show_bad([(row, side(row)) for row in rows])
    used = Counter(rule for row in rows for rule in row.rules)
    print("\nkept on the CPU by hexport, because the NPU is wrong or fails and no rule helps")
    for row in (row for row in rows if row.pins):
        print(f"  {row.test.removeprefix('test_')}: {'; '.join(dict.fromkeys(row.pins))}")
    print("\nrules used:", ", ".join(f"{rule} {count}×" for rule, count in used.most_common()) or "none")


def _show_bad(pairs: Sequence[tuple[Row, Outcome]]) -> None:
    by_op: dict[str, list[str]] = defaultdict(list)
    for row, outcome in pairs:
        if outcome.kind in BAD:
            detail = f"{outcome.db:.0f} dB" if outcome.db is not None else one_line(outcome.error, 70)
            by_op[row.op].append(f"{outcome.kind:7} {row.test.removeprefix('test_')} ({detail})")
    for op, lines in sorted(by_op.items()):
        print(f"  {op}")
        for line in lines:
            print(f"    {line}")


def _write(rows: Sequence[Row], soc: facts.Soc) -> None:
    document = {
        "schema_version": 1,
        "target": soc.chip,
        "versions": _versions(),
        "enough_db": ENOUGH_DB,
        "counts": {
            "plain": dict(Counter(row.plain.kind for row in rows)),
            "hexport": dict(Counter(row.hexport.kind for row in rows)),
        },
        "tests": [
            {
                **asdict(row),
                "plain": _outcome(row.plain),
                "hexport": _outcome(row.hexport),
            }
            for row in rows
        ],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _outcome(outcome: Outcome) -> dict[str, object]:
    db = outcome.db
    number = None if db is None else "-inf" if db == float("-inf") else round(db, 1)
    return {**asdict(outcome), "db": number, "error": one_line(outcome.error)}


if __name__ == "__main__":
    main()
