"""The last resort: when the NPU fails on a model or gives wrong numbers, what is to blame goes to the CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir
import onnx_ir.passes.common as passes

from hexport import facts
from hexport.errors import HexportError
from hexport.observe.decibels import USABLE_DB
from hexport.preparation.culprits import Suspect
from hexport.preparation.pin_search import Judge, PinSearch, Score, Search
from hexport.preparation.pipeline import Standing, stand
from hexport.preparation.tensors import compute_tensors
from hexport.preparation.trials import Trials
from hexport.preparation.workbench import EQUAL_DB, Attempt, Workbench
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.naming import name_nodes
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_ONE_TRIAL = 120.0
"""Seconds that a part of the model may take."""


def rescue(bench: Workbench, standing: Standing, seconds: float) -> Standing:
    """Pin what keeps the model from running or from being right; each pin and what it cures is recorded.

    Gives the standing unchanged when nothing is broken or no pin helps. ``seconds`` is when to stop looking;
    a compilation under way is not cut short.
    """
    start = _score(standing)
    if not start.failure and start.db >= USABLE_DB:
        return standing
    if not bench.samples:
        bench.attempts.append(Attempt("rescue", False, "there is no sample to find the fault with"))
        return standing
    try:
        found = rescue_model(
            bench.model,
            bench.samples[0],
            start,
            lambda model: _score(stand(bench, model)),
            bench.target,
            seconds,
            limits=bench.limits,
        )
        equal = bench.equivalence(found.model).sqnr_db if found.pins else 0.0
    except HexportError as error:
        bench.attempts.append(Attempt("rescue", False, f"{error.what}: {error.why}"))
        return standing
    if not found.pins:
        why = f"no pin helps; wrong alone: {_named(found.undone)}" if found.undone else "no node is to blame"
        bench.attempts.append(Attempt("rescue", False, why))
        return standing
    if equal < EQUAL_DB:
        bench.attempts.append(Attempt("rescue", False, f"the pins change the result ({equal:.0f} dB)"))
        return standing
    bench.model = found.model
    bench.attempts += [Attempt("pinned to the CPU", True, _told(pin), (pin.name,)) for pin in found.pins]
    return stand(bench, found.model)


def rescue_model(
    model: ir.Model,
    sample: Mapping[str, Array],
    start: Score,
    judge: Judge,
    target: facts.Soc,
    seconds: float,
    *,
    enough_db: float = USABLE_DB,
    limits: Limits | None = None,
) -> Search:
    """Look for pins that bring ``model`` to ``enough_db`` as ``judge`` sees it; ``start`` is without any."""
    deadline = time.monotonic() + seconds
    copy = model.clone()
    passes.InlinePass()(copy)
    infer_shapes(copy)
    name_nodes(copy)
    limits = limits or Limits()
    with temporary_folder() as folder:
        tensors = compute_tensors(copy, sample, folder, limits)
        each = Limits(min(_ONE_TRIAL, limits.seconds), limits.memory_bytes)
        with Trials(folder, target, each) as trials:
            return PinSearch(copy, judge, tensors, trials, enough_db, deadline).run(start)


def _score(standing: Standing) -> Score:
    if standing.failure is not None:
        return Score(float("-inf"), standing.failure.why or standing.failure.what)
    return Score(standing.htp.sqnr_db if standing.htp is not None else float("inf"))


def _told(pin: Suspect) -> str:
    cost = "MACs not known" if pin.macs is None else f"{pin.macs:,} MACs"
    return f"{pin.told} ({cost})"


def _named(suspects: tuple[Suspect, ...]) -> str:
    return ", ".join(f"{suspect.name} ({suspect.what})" for suspect in suspects[:4])
