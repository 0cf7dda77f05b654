"""Every integer operator on the simulator, in every precision: how near, and computed in what.

    python bench/htp_operators.py [--target SM8650] [--ops Conv,Add] [--precisions u8/s8] [--as-planned]

Each form of tests/operator_forms.py is quantised by hexport's own emitter, calibrated on the very numbers it
is run on. "HTP" is the SQNR of the simulator against the same quantised model on the CPU without graph
optimisations, "float" that against the float model. Types that the facts forbid are measured too, so that
what is forbidden is seen to be wrong; --as-planned leaves them as hexport plans them. JSON goes to
bench/results; docs/numerics.md has the table that --markdown prints from it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from hexport import facts

HERE = Path(__file__).parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE.parent / "tests"))

from operator_forms import every  # noqa: E402  the cases are shared with the tests
from operator_runs import Measured, in_scheme, measure  # noqa: E402

SCHEMES = {"u8/s8": "8a8w", "u16/s8": "16a8w", "u16/s16": "16a16w", "u16/s4": "16a4w"}

_FLOAT32_DB = 130.0
"""Nearer than this only float32's own rounding differs."""


def measure_all(
    target: facts.Soc, precisions: list[str], ops: set[str] | None, force: bool
) -> dict[str, dict[str, Measured]]:
    """By precision, then by case; weights other than s8 only where there are weights."""
    found = {}
    for precision in precisions:
        print(f"{target.chip} {precision} …", file=sys.stderr, flush=True)
        cases = [
            one
            for one in every()
            if (ops is None or one.op in ops)
            and (precision.endswith("/s8") or facts.integer_ops()[one.op].weights)
        ]
        found[precision] = measure(
            cases, in_scheme(SCHEMES[precision], force=force, arch=target.htp_arch), target
        )
    return found


def written(db: float) -> str:
    return "exact" if db > _FLOAT32_DB else "" if math.isnan(db) else f"{db:.0f}"


def show(found: Mapping[str, Mapping[str, Measured]]) -> None:
    print(f"{'case':42} {'precision':9} {'where':8} {'HTP':>6} {'float':>6}  computed")
    for one in every():
        for precision, cases in found.items():
            if (m := cases.get(one.name)) is not None:
                dbs = f"{written(m.db):>6} {written(m.db_float):>6}"
                print(f"{one.name:42} {precision:9} {m.place:8} {dbs}  {m.computed.splitlines()[-1][:100]}")


def markdown(found: Mapping[str, Mapping[str, Measured]]) -> str:
    """One row an operator; the least of its forms, and what else than integers was found."""
    rows = [f"| operator | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    by_op: dict[str, dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for one in every():
        for precision, cases in found.items():
            if one.name in cases:
                by_op[one.op][precision].append(cases[one.name])
    for op, cells in by_op.items():
        rows.append(f"| {op} | {' | '.join(_cell(cells.get(precision, [])) for precision in found)} |")
    return "\n".join(rows)


def _cell(measured: list[Measured]) -> str:
    inside = [m for m in measured if m.place == "integer"]
    parts = []
    if inside:
        least, most = min(m.db for m in inside), max(m.db for m in inside)
        parts.append(
            written(least) if written(least) == written(most) else f"{written(least)} – {written(most)}"
        )
    for place, mark in (("float", "fp16"), ("cpu", "CPU"), ("fails", "**fails**")):
        # A single form needs no name beyond the operator's.
        names = [m.case.partition(" ")[2] or "plain" for m in measured if m.place == place]
        if names:
            parts.append(mark if len(names) == len(measured) else f"{mark}: {', '.join(names)}")
    return "; ".join(parts) or "–"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="SM8650")
    parser.add_argument("--ops", help="names, separated by commas; all by default")
    parser.add_argument("--precisions", default=",".join(SCHEMES))
    parser.add_argument("--as-planned", action="store_true", help="do not force what the facts forbid")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/numerics.md")
    options = parser.parse_args()
    precisions = options.precisions.split(",")
    if unknown := [p for p in precisions if p not in SCHEMES]:
        parser.error(f"--precisions {unknown[0]}: choose among {', '.join(SCHEMES)}")
    ops = set(options.ops.split(",")) if options.ops else None
    if ops and (strange := sorted(ops - {one.op for one in every()})):
        parser.error(f"--ops {strange[0]}: there is no case for it")
    target = facts.find_target(options.target)
    found = measure_all(target, precisions, ops, force=not options.as_planned)
    document = {p: {name: asdict(m) for name, m in cases.items()} for p, cases in found.items()}
    RESULTS.mkdir(exist_ok=True)
    some = "-some" if ops or options.as_planned or len(precisions) < len(SCHEMES) else ""
    file = RESULTS / f"htp-operators-{target.chip}{some}.json"
    file.write_text(
        json.dumps({"schema_version": 1, "target": target.chip, "precisions": document}, indent=1)
    )
    if options.markdown:
        print(markdown(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
