"""``quantize``: from a float model to integers that are as exact as was asked for, judged on the NPU."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import onnx_ir as ir

from hexport import facts, zoo
from hexport.backend.running import run_on_cpu
from hexport.errors import UsageError
from hexport.model import Graph, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.scheme import scheme_of
from hexport.preparation.freezing import parse_frozen
from hexport.preparation.saving import save
from hexport.preparation.verb import LABEL, prepare
from hexport.quantization.data import CalibrationData, open_calibration
from hexport.quantization.fitting_model import fit_for_integers
from hexport.quantization.holding_out import Part, too_few
from hexport.quantization.judging import Judge, Metric
from hexport.quantization.metric import find_metric
from hexport.quantization.outcome import Quantization, decisions, float_nodes
from hexport.quantization.plan import SCHEMES
from hexport.quantization.search import EFFORTS, Candidate, Search
from hexport.quantization.wishes import Wishes, read_wishes
from hexport.quantization.workshop import Workshop
from hexport.rewrite.applying import infer_shapes
from hexport.toolchain import Limits

GOALS = {"8a8w": 20.0, "16a8w": 30.0, "16a16w": 40.0, "16a4w": 15.0, "16a4w_block": 15.0, "auto": 30.0}
"""Where the search ends when the user asks for nothing: what is reachable and mostly enough."""
_JUDGES = 4
"""Samples that candidates are judged on, at most."""
_GOALS_FOR_A_METRIC = (15.0, 20.0, 25.0, 30.0, 40.0)
Say = Callable[[str], None]


def quantize(
    model: str | Path,
    *,
    output: Path,
    target: str | int,
    scheme: str = "auto",
    calib: object = None,
    min_sqnr: float | None = None,
    metric: str | Metric | None = None,
    max_drop: float | None = None,
    override: Path | None = None,
    keep_float: Sequence[str] = (),
    effort: str = "normal",
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    freeze: Mapping[str, str] | None = None,
    preprocess: Path | None = None,
    samples: int | None = None,
    limits: Limits | None = None,
    say: Say = lambda _: None,
) -> Quantization:
    """Write to ``output`` what ``model`` becomes in integers for ``target``, and ``quant.json`` beside it."""
    began = time.perf_counter()
    soc = facts.find_target(target)
    wishes = read_wishes(override, keep_float)
    _refuse_unknown(scheme, effort, output)
    measure, allowed = find_metric(metric, max_drop, min_sqnr)
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="hexport-") as name:
        folder = Path(name)
        ready = _prepared(model, folder, soc, dims, input_shapes, freeze, limits, say)
        _refuse_quantised(model, ready.graph)
        with _calibration(model, calib, ready, preprocess, samples) as data:
            shop, judge = _set_up(ready, data, soc, folder, wishes, limits, say)
            judge.metric = measure
            search = Search(
                shop,
                judge,
                GOALS.get(scheme, 0.0) if min_sqnr is None else min_sqnr,
                EFFORTS[effort],
                lambda plan: wishes.apply(shop.model, plan),
                say,
                allowed,
            )
            best = _search(search, scheme, soc)
        save(best.model, output)
        _write_decisions(output, shop, best)
        floats, share = float_nodes(shop.model, best.plan)
        return Quantization(
            str(model),
            str(output),
            soc,
            scheme,
            min_sqnr,
            allowed,
            best,
            tuple(search.tried),
            floats,
            share,
            ready.path.stat().st_size,
            output.stat().st_size,
            time.perf_counter() - began,
            (*ready.notes, *data.notes, *_few(data)),
        )


def _search(search: Search, scheme: str, soc: facts.Soc) -> Candidate:
    """One scheme, or the cheapest that is enough."""
    if search.most_drop is None:
        return _at_goal(search, scheme, soc)
    # A metric says whether a model is good, not how far it is from it: ask for more until it is.
    best: Candidate | None = None
    for search.goal_db in _GOALS_FOR_A_METRIC:
        found = _at_goal(search, scheme, soc)
        if best is None or _lost(found) < _lost(best):
            best = found
        if search.is_enough(best) or found.sqnr_db < search.goal_db:
            break
    assert best is not None
    return best


def _lost(candidate: Candidate) -> float:
    return inf if candidate.drop is None else candidate.drop


def _at_goal(search: Search, scheme: str, soc: facts.Soc) -> Candidate:
    if scheme == "fp16":
        return search.in_float()
    if scheme != "auto":
        return search.pursue(SCHEMES[scheme], scheme)
    found: list[Candidate] = []
    for name in ("8a8w", "16a8w"):
        found.append(search.pursue(SCHEMES[name], name))
        if search.is_enough(found[-1]):
            return found[-1]
    if soc.float:
        found.append(search.pursue(SCHEMES["16a8w"], "16a8w and fp16", float_share=1.0))
        if not search.is_enough(found[-1]):
            found.append(search.in_float())
    enough = [candidate for candidate in found if search.is_enough(candidate)]
    return min(enough, key=lambda c: c.cost) if enough else max(found, key=lambda c: c.sqnr_db)


@dataclass(frozen=True)
class _Ready:
    """A prepared model, and what inputs the user's own one takes: calibration data are made for that."""

    path: Path
    graph: Graph
    inputs: Graph
    shapes: Mapping[str, Shape]
    frozen: Mapping[str, Any]
    notes: tuple[str, ...]


def _prepared(
    model: str | Path,
    folder: Path,
    soc: facts.Soc,
    dims: Mapping[str, int] | None,
    input_shapes: Mapping[str, Shape] | None,
    freeze: Mapping[str, str] | None,
    limits: Limits,
    say: Say,
) -> _Ready:
    """The model, prepared now unless it was before."""
    source = read(zoo.resolve(model))
    if any(bytes(entry.key) == LABEL.encode() for entry in source.proto.metadata_props):
        shapes = fix_shapes(source.graph, dims or {}, input_shapes or {}, f"hexport quantize '{model}'")
        return _Ready(source.path, source.graph, source.graph, shapes, {}, ())
    say("preparing")
    path = folder / "prepared.onnx"
    result = prepare(
        model,
        output=path,
        target=soc.soc_model,
        dims=dims,
        input_shapes=input_shapes,
        freeze=freeze,
        limits=limits,
    )
    values = parse_frozen(source.graph, result.frozen, result.input_shapes)
    graph = read(path).graph
    return _Ready(path, graph, source.graph, result.input_shapes, values, result.warnings)


def _calibration(
    model: str | Path, calib: object, ready: _Ready, preprocess: Path | None, samples: int | None
) -> CalibrationData:
    if calib is None and str(model).startswith("zoo:"):
        calib = str(model)
    if calib is None:
        raise UsageError(
            "quantising needs calibration data",
            why="the ranges of integers are those of real inputs; random numbers give a useless model",
            next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; docs/calibration.md has all of it",
        )
    return open_calibration(
        calib, ready.inputs, ready.shapes, ready.frozen, preprocess=preprocess, limit=samples
    )


def _set_up(
    ready: _Ready,
    data: CalibrationData,
    soc: facts.Soc,
    folder: Path,
    wishes: Wishes,
    limits: Limits,
    say: Say,
) -> tuple[Workshop, Judge]:
    prepared = ir.load(ready.path)
    ir.external_data.load_to_model(prepared)
    model = prepared.clone()
    fit_for_integers(model)
    for each in (prepared, model):
        infer_shapes(each)
        name_nodes(each)
    inputs = set(ready.graph.inputs)
    held_out = list(islice(Part(data, inputs, held=True), _JUDGES))
    say(f"calibrating on {data.count} samples")
    reference = run_on_cpu(ready.path, held_out, limits=limits).outputs
    judge = Judge(soc, held_out, reference, folder, limits)
    fit = Part(data, inputs, held=False)
    return Workshop(
        prepared, model, Part(data, inputs), fit, folder, soc.htp_arch, dict(wishes.tensors)
    ), judge


def _few(data: CalibrationData) -> list[str]:
    if not too_few(data):
        return []
    return [f"{data.count} samples are too few to hold any out: the figures are from those it was fitted to"]


def name_nodes(model: ir.Model) -> None:
    """Plans go by names, so every node has one, and no two the same."""
    seen: set[str] = set()
    for index, node in enumerate(model.graph):
        if not node.name or node.name in seen:
            node.name = f"{node.name or node.op_type}#{index}"
        seen.add(node.name)


def _write_decisions(output: Path, shop: Workshop, best: Candidate) -> None:
    path = output.with_name(f"{output.stem}.quant.json")
    path.write_text(json.dumps(decisions(shop, best), indent=1, sort_keys=True) + "\n", "utf-8")


def _refuse_unknown(scheme: str, effort: str, output: Path) -> None:
    if scheme not in (*SCHEMES, "auto"):
        raise UsageError(f"there is no scheme {scheme!r}", why=f"there are {', '.join(SCHEMES)} and auto")
    if effort not in EFFORTS:
        raise UsageError(f"there is no effort {effort!r}", why=f"there are {', '.join(EFFORTS)}")
    if not output.parent.is_dir():
        raise UsageError(f"{output} cannot be written", why=f"there is no folder {output.parent}")


def _refuse_quantised(model: str | Path, graph: Graph) -> None:
    found = scheme_of(graph, {})
    if found != "fp16":
        raise UsageError(
            f"{model} is quantised already ({found})",
            why="rounding what is rounded only loses",
            next="give the float model, or use this one as it is: `hexport check` tells how it runs",
        )
