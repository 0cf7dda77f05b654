"""Every form of operator through QNN's CPU backend: what it takes in which precision, and what is right.

    python bench/backends_operators.py [--toolchain NAME] [--precisions float,8a8w,16a8w] [--all]

The forms are those of tests/operator_forms.py; quantised ones are made by hexport, calibrated on the very
numbers they are run on. dB is against the same model on ONNX Runtime's CPU without graph optimisations. What
is taken and below 20 dB is listed, with --all everything. JSON goes to bench/results.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx_ir as ir

from arguments import listed
from hexport import HexportError
from hexport.backend.requests import AssignedPart
from hexport.backend.running import run_on, run_on_cpu
from hexport.backend.where import QNN_CPU, choose_where
from hexport.environments.choosing import using
from plain_runs import one_line

HERE = Path(__file__).parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE.parent / "tests"))

from operator_cases import Case, merged  # noqa: E402  the cases are shared with the tests
from operator_forms import every  # noqa: E402
from operator_runs import as_written, decibels, in_scheme  # noqa: E402

PRECISIONS = ("float", "8a8w", "16a8w")
WRONG_DB = 20.0
_BATCH = 40
_AROUND = ("QuantizeLinear", "DequantizeLinear", "Cast")


@dataclass(frozen=True)
class Form:
    """One form in one precision."""

    name: str
    precision: str
    place: str
    """``taken``, ``left`` or ``fails``; ``gone`` when nothing of it is left to place."""
    db: float | None = None
    why: str = ""

    @property
    def wrong(self) -> bool:
        return self.place == "taken" and self.db is not None and not self.db >= WRONG_DB


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--toolchain", default="onnxruntime-qnn-2.3.0", metavar="NAME")
    parser.add_argument("--precisions", type=listed(PRECISIONS), default=list(PRECISIONS), metavar="A,B")
    parser.add_argument("--all", action="store_true", help="list every form")
    options = parser.parse_args()
    try:
        with using(options.toolchain) as toolchain:
            forms = [form for precision in options.precisions for form in measure(precision)]
    except HexportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    show(forms, options.precisions, every_form=options.all)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "backends-operators.json"
    document = {"schema_version": 1, "toolchain": toolchain.title, "forms": [asdict(form) for form in forms]}
    file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def measure(precision: str) -> list[Form]:
    """Many in one session, as long as that holds together."""
    cases, found = every(), []
    for opset in sorted({case.opset for case in cases}):
        alike = [case for case in cases if case.opset == opset]
        for start in range(0, len(alike), _BATCH):
            found += _together(alike[start : start + _BATCH], precision)
        print(f"{precision}: {len(found)} of {len(cases)}", file=sys.stderr, flush=True)
    return found


def _together(cases: Sequence[Case], precision: str) -> list[Form]:
    build = as_written if precision == "float" else in_scheme(precision, force=True)
    proto, feeds = merged(cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cases.onnx")
        ir.save(build(proto, feeds), path)
        try:
            results = run_on(path, [feeds], choose_where(QNN_CPU, None))
            expected = run_on_cpu(path, [feeds], optimize=False).outputs[0]
        except HexportError as error:
            if len(cases) == 1:
                return [Form(cases[0].name, precision, "fails", why=one_line(error.why or error.what))]
            half = len(cases) // 2
            return _together(cases[:half], precision) + _together(cases[half:], precision)
    got = results.outputs[0]
    return [
        Form(
            case.name,
            precision,
            _placed(case, results.parts),
            _number(decibels(expected[f"{case.name}/y"], got[f"{case.name}/y"])),
        )
        for case in cases
    ]


def _placed(case: Case, parts: Sequence[AssignedPart]) -> str:
    places = {
        part.provider.startswith("CPU")
        for part in parts
        for node in part.nodes
        if node.name.startswith(f"{case.name}/") and node.op not in _AROUND
    }
    return "left" if True in places else "taken" if places else "gone"


def _number(db: float) -> float | None:
    """None: the same to the last bit."""
    return None if math.isinf(db) else db


def show(forms: Sequence[Form], precisions: Sequence[str], *, every_form: bool) -> None:
    """Print it."""
    for form in forms:
        if every_form or form.wrong or form.place == "fails":
            db = "" if form.place == "fails" else "exact" if form.db is None else f"{form.db:.0f} dB"
            print(f"{form.precision:6} {form.name:46} {form.place:6} {db:>7}  {form.why}")
    for precision in precisions:
        mine = [form for form in forms if form.precision == precision]
        taken = [form for form in mine if form.place == "taken"]
        right = [form.db for form in taken if not form.wrong and form.db is not None]
        least = f", the others {min(right):.0f} dB or more" if right else ""
        wrong, failed = sum(form.wrong for form in taken), sum(form.place == "fails" for form in mine)
        counts = f"{len(taken)} taken, {wrong} of them below {WRONG_DB:.0f} dB{least}; {failed} fail"
        print(f"{precision}: {len(mine)} forms, {counts}")


if __name__ == "__main__":
    main()
