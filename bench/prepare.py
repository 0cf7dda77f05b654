"""The zoo through `hexport prepare`, beside what an expert gets from plain onnxruntime-qnn.

    python bench/prepare.py [--models a,b] [--target SM8650]

The plain expert fixes the shapes and knows to name the chip (fp16); prepare starts from the same and
says what it did. Both sides are measured in one run: where nodes run, and the worst output's SQNR on the
simulator against the original in fp32 on the CPU, for one real input. JSON goes to bench/results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hexport import HexportError, zoo
from hexport.preparation.pipeline import Standing
from hexport.preparation.verb import Preparation, prepare

RESULTS = Path(__file__).parent / "results"
ENOUGH_MACS = 99.0


@dataclass(frozen=True)
class Row:
    model: str
    seconds: float
    result: Preparation | None
    error: str = ""


def measure(name: str, target: str) -> Row:
    print(f"{name} …", file=sys.stderr, flush=True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = prepare(f"zoo:{name}", output=Path(folder, "out.onnx"), target=target)
        except HexportError as error:
            return Row(name, time.perf_counter() - began, None, f"{error.code} {error.what}")
    return Row(name, time.perf_counter() - began, result)


def counts(standing: Standing, at_least: float) -> bool:
    """Whole on the NPU in one partition, or 99 % of the MACs, and close enough to fp32."""
    if standing.verdict is None or standing.htp is None:
        return False
    whole = standing.verdict.full and len(standing.verdict.partitions) == 1
    return (whole or standing.verdict.meets(str(ENOUGH_MACS))) and standing.htp.sqnr_db >= at_least


def describe(standing: Standing) -> str:
    if standing.verdict is None:
        return f"fails, {standing.failure.code}" if standing.failure else "fails"
    verdict = standing.verdict
    where = "whole" if verdict.full else f"{verdict.nodes.cpu} on CPU"
    quality = f"{standing.htp.sqnr_db:.0f} dB" if standing.htp else "no result"
    return f"{where}, {len(verdict.partitions)} part., {quality}, {verdict.compile_seconds:.1f} s"


def show(rows: list[Row]) -> None:
    print(f"{'model':20} {'plain, by an expert':38} {'hexport prepare':38} {'time':>6}  rules kept")
    for row in rows:
        if row.result is None:
            print(f"{row.model:20} {'':38} {row.error}")
            continue
        rules = ", ".join(f"{a.name} ×{len(a.nodes)}" for a in row.result.attempts if a.kept and a.nodes)
        before, after = describe(row.result.before), describe(row.result.after)
        print(f"{row.model:20} {before:38} {after:38} {row.seconds:5.0f}s  {rules}")
    done = [row.result for row in rows if row.result is not None]
    for label, standings in (("plain", [r.before for r in done]), ("prepare", [r.after for r in done])):
        compiled = sum(s.verdict is not None for s in standings)
        good, better = (sum(counts(s, db) for s in standings) for db in (30.0, 40.0))
        print(f"{label:8} of {len(rows)}: {compiled} compile, {good} on the NPU at ≥ 30 dB, {better} at ≥ 40")
    print(f"all of it {sum(row.seconds for row in rows):.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", help="names, separated by commas; all by default")
    parser.add_argument("--target", default="SM8650")
    options = parser.parse_args()
    rows = []
    for name in options.models.split(",") if options.models else zoo.names():
        rows.append(measure(name, options.target))
        document = [
            {
                "model": r.model,
                "seconds": r.seconds,
                "error": r.error,
                "result": r.result.to_json() if r.result else None,
            }
            for r in rows
        ]
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / ("prepare-some.json" if options.models else "prepare.json")
        file.write_text(json.dumps({"schema_version": 1, "models": document}, indent=1))
    show(rows)


if __name__ == "__main__":
    main()
