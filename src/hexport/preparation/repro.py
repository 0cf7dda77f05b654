"""When nothing made the model compile: the smallest piece of it that still fails, saved for a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from hexport.errors import HexportError
from hexport.faultfinding.backend_failure import BackendTrial, Works
from hexport.faultfinding.reduce import reduce_model
from hexport.preparation.pipeline import Standing
from hexport.preparation.workbench import Attempt, Workbench
from hexport.storage.temporary import temporary_folder
from hexport.whole_file import whole_or_absent


@dataclass(frozen=True)
class Repro:
    """A piece that fails like the whole."""

    file: str
    nodes: tuple[str, ...]
    of: int
    """Nodes of the whole model."""
    failure: str


def save_repro(bench: Workbench, standing: Standing, output: Path, seconds: float) -> Repro | None:
    """Beside ``output``; None when the model compiles, or when the piece cannot be found, which is said."""
    if standing.failure is None or not bench.samples:
        return None
    try:
        with temporary_folder() as folder:
            # No result is too inexact here: what is looked for is a failure.
            trial = BackendTrial(bench.target, float("-inf"), folder, bench.limits)
            failing = trial.establish(bench.model, bench.samples[0])
            if isinstance(failing, Works):
                return None
            found = reduce_model(
                bench.model, failing.shows, seconds=seconds, confirmed=True, limits=bench.limits
            )
    except HexportError as error:
        bench.attempts.append(Attempt("reduce", False, f"{error.what}: {error.why}"))
        return None
    path = output.with_name(f"{output.stem}.repro.onnx")
    with whole_or_absent(path) as part:
        ir.save(found.model, part)
    names = tuple(f"{node.op} {node.name}" for node in found.nodes)
    return Repro(str(path), names, found.of, f"{failing.symptom.code} {failing.symptom.what}".strip())
