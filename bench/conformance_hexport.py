"""hexport's side of a test, in the order of `hexport prepare`: rules; clean-up and rules; pins to the CPU.

Each is only tried when what came before it leaves the test wrong, failing or dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from conformance_cases import Case
from conformance_rules import clean, load, rewrite, write
from conformance_runs import BAD, ENOUGH_DB, Outcome, Runner
from hexport import facts
from hexport.errors import HexportError
from hexport.preparation.pin_search import Score
from hexport.preparation.rescue import rescue_model
from hexport.rewrite.rule import Purpose
from hexport.toolchain import Limits

_SECONDS = 60.0
"""For finding what to pin in one test."""


@dataclass(frozen=True)
class Result:
    """What became of a test, and by what."""

    outcome: Outcome
    rules: tuple[str, ...] = ()
    cleaned: bool = False
    pins: tuple[str, ...] = ()
    """Operators that were kept on the CPU, each with the reason."""


def run_hexport(case: Case, plain: Outcome, expected: Path, runner: Runner, soc: facts.Soc) -> Result:
    """The test by hexport's means; ``plain`` is what came without them."""
    folder = expected.parent
    # What the NPU takes needs no other form; faults come last, for what the other rules made.
    purposes = [Purpose.FAULT] if plain.whole else [Purpose.SUPPORT, Purpose.FAULT]
    changed, cleaned = folder / "changed.onnx", folder / "cleaned.onnx"
    try:
        rules = rewrite(case.model, changed, purposes)
        outcome = plain
        if rules:
            outcome = runner.on_npu(changed, case.inputs, expected)
        if outcome.kind not in BAD:
            return Result(outcome, rules)
        after = clean(case.model, cleaned)
        better = runner.on_npu(cleaned, case.inputs, expected)
        if better.kind not in BAD:
            return Result(better, after, cleaned=True)
        return _rescued(case, cleaned, better, after, expected, runner, soc)
    except Exception as error:  # noqa: BLE001 - a rule that throws is a result to be shown
        return Result(Outcome("failed", error=f"{type(error).__name__}: {error}"))


def _rescued(
    case: Case,
    model: Path,
    outcome: Outcome,
    rules: Sequence[str],
    expected: Path,
    runner: Runner,
    soc: facts.Soc,
) -> Result:
    file = expected.parent / "pinned.onnx"

    def judge(candidate: ir.Model) -> Score:
        write(candidate, file)
        return _score(runner.on_npu(file, case.inputs, expected))

    with np.load(case.inputs, allow_pickle=False) as arrays:
        sample = {name: arrays[name] for name in arrays.files}
    try:
        found = rescue_model(
            load(model),
            sample,
            _score(outcome),
            judge,
            soc,
            _SECONDS,
            enough_db=ENOUGH_DB,
            limits=Limits(seconds=60),
        )
    except HexportError as error:
        return Result(Outcome("failed", error=f"rescue: {error.what}: {error.why}"), tuple(rules))
    write(found.model, file)
    after = runner.on_npu(file, case.inputs, expected)
    return Result(after, tuple(rules), cleaned=True, pins=tuple(p.told for p in found.pins))


def _score(outcome: Outcome) -> Score:
    if outcome.kind in ("failed", "killed"):
        return Score(float("-inf"), outcome.error or outcome.kind)
    return Score(float("inf") if outcome.db is None else outcome.db)
