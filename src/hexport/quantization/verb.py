"""``quantize``: from a float model to integers that are as exact as was asked for, judged on the NPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import onnx_ir as ir

from hexport import facts
from hexport.errors import UsageError
from hexport.model.dims import Shape
from hexport.model.reference import cpu_session, run_each
from hexport.preparation.saving import save
from hexport.quantization.candidates import EFFORTS, Effort
from hexport.quantization.data import CalibrationData
from hexport.quantization.fitting_model import fit_for_integers
from hexport.quantization.goal import UNSEEN_DB
from hexport.quantization.holding_out import Part, too_few
from hexport.quantization.judging import Judge, Metric, Samples
from hexport.quantization.layers_on_npu import layers_on_npu
from hexport.quantization.metric import find_metric
from hexport.quantization.outcome import Quantization, decisions, float_nodes, mac_shares
from hexport.quantization.pacing import telling_of_samples
from hexport.quantization.plan import SCHEMES, Plan
from hexport.quantization.readying import Ready, Sizes, get_ready
from hexport.quantization.recipe import Recipe, as_settled
from hexport.quantization.remarks import remarks
from hexport.quantization.search import Search
from hexport.quantization.strategy import find_best
from hexport.quantization.wishes import Wishes, read_wishes
from hexport.quantization.workshop import Workshop
from hexport.rewrite.applying import infer_missing_shapes, infer_shapes
from hexport.rewrite.naming import name_nodes
from hexport.rewrite.newer_opset import to_opset
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.whole_file import refuse_missing_folder, whole_or_absent

GOALS = {"8a8w": 20.0, "16a8w": 30.0, "16a16w": 40.0, "16a4w": 15.0, "16a4w_block": 15.0, "auto": 30.0}
"""Where the search ends when the user asks for nothing: what is reachable and mostly enough."""
_FIRST_OPSET_OF_BLOCKS = 21
_JUDGES = 4
"""Samples that candidates are judged on, at most."""
Say = Callable[[str], None]


def quantize(
    model: str | Path,
    *,
    output: str | Path,
    target: str | int,
    scheme: str = "auto",
    calib: object = None,
    min_sqnr: float | None = None,
    metric: str | Metric | None = None,
    max_drop: float | None = None,
    override: str | Path | None = None,
    keep_float: Sequence[str] = (),
    ranges: str | None = None,
    without: Sequence[str] = (),
    effort: str = "normal",
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    freeze: Mapping[str, str] | None = None,
    preprocess: str | Path | None = None,
    samples: int | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    say: Say = lambda _: None,
) -> Quantization:
    """Write to ``output`` what ``model`` becomes in integers for ``target``, and ``quant.json`` beside it.

    ``ranges`` and ``without`` settle techniques that would be tried (see ``recipe.py``).
    ``executor`` compares candidates side by side: threads, processes, or a cluster that shares the disk.
    """
    began, output = time.perf_counter(), Path(output)
    soc = facts.find_target(target)
    wishes = read_wishes(None if override is None else Path(override), keep_float)
    _refuse_unknown(scheme, effort, output)
    recipes = _recipes(scheme, effort, wishes, ranges, without)
    measure, allowed = find_metric(metric, max_drop, min_sqnr)
    limits = limits or Limits()
    with temporary_folder() as folder:
        sizes = Sizes(dims, input_shapes, freeze)
        with get_ready(
            model, soc, calib, sizes, preprocess, samples, folder, limits, say, wishes.cures
        ) as ready:
            shop, judge = _set_up(ready, soc, folder, wishes, limits, say, blocks=_blocks(scheme, wishes))
            judge.metric, judge.executor = measure, executor
            tries = _effort(effort, asked=min_sqnr is not None or measure is not None)
            search = Search(
                shop,
                judge,
                GOALS.get(scheme, 0.0) if min_sqnr is None else min_sqnr + UNSEEN_DB,
                replace(tries, recipes=recipes),
                lambda plan: wishes.apply(shop.model, plan, soc.htp_arch),
                say,
                allowed,
            )
            # Also a scheme that heeds no wishes must not pass over a wrong one.
            wishes.apply(shop.model, Plan(), soc.htp_arch)
            best = find_best(search, scheme, soc)
            looked = tries.layers and best.npu is not None
            layers, unmeasured = layers_on_npu(shop, judge, best) if looked else ((), ())
        save(best.model, output)
        _write_decisions(output, decisions(shop, best, ready.cures))
        return Quantization(
            str(model),
            str(output),
            soc,
            scheme,
            min_sqnr,
            allowed,
            best,
            tuple(search.tried),
            tuple(search.worst),
            layers,
            float_nodes(shop.model, best.plan),
            mac_shares(shop.model, best.plan),
            ready.path.stat().st_size,
            output.stat().st_size,
            time.perf_counter() - began,
            ready.cures,
            (
                *ready.notes,
                *ready.data.notes,
                *_few(ready.data),
                *remarks(shop, scheme, min_sqnr, best, search.tried),
                *unmeasured,
            ),
        )


def _recipes(
    scheme: str, effort: str, wishes: Wishes, ranges: str | None, without: Sequence[str]
) -> tuple[Recipe, ...]:
    """The effort's own or a quant.json's, as far as the user left them open."""
    if scheme == "fp16" and (ranges or without):
        raise UsageError(
            f"{'--ranges' if ranges else '--without'} means nothing for fp16",
            why="nothing is quantised in it",
            next="leave it out, or ask for another scheme",
        )
    return as_settled((wishes.recipe,) if wishes.recipe else EFFORTS[effort].recipes, ranges, without)


def _effort(name: str, *, asked: bool) -> Effort:
    """What was chosen; a goal can only be judged on the NPU, however little else is tried."""
    chosen = EFFORTS[name]
    return chosen if chosen.npu_samples or not asked else replace(chosen, npu_samples=1)


def _set_up(
    ready: Ready,
    soc: facts.Soc,
    folder: Path,
    wishes: Wishes,
    limits: Limits,
    say: Say,
    *,
    blocks: bool,
) -> tuple[Workshop, Judge]:
    model = _loaded(ready.path)
    if blocks:
        model = _with_blocks(model)
        infer_shapes(model)
    fit_for_integers(model)
    name_nodes(model)
    inputs, data = set(ready.graph.inputs), ready.data
    held_out = list(islice(Part(data, inputs, held=True), _JUDGES))
    reference = run_each(cpu_session(ready.path, hoard=False), held_out)
    fit = Part(data, inputs, held=False)

    def find_others(count: int) -> Samples:
        found = [] if too_few(data) else list(islice(fit, count))
        return found, run_each(cpu_session(ready.path, hoard=False), found)

    judge = Judge(soc, held_out, reference, folder, limits, find_others=find_others)

    shop = Workshop(
        lambda: _loaded(ready.path),
        model,
        Part(data, inputs),
        fit,
        folder,
        soc.htp_arch,
        fingerprint=data.fingerprint,
        tell=telling_of_samples(say, data.count or 0),
        is_fit=fit.has,
        overrides=dict(wishes.tensors),
    )
    return shop, judge


def _loaded(path: Path) -> ir.Model:
    """The model with shapes and names, and its weights as arrays: a parsed file gives out a new copy at
    every look."""
    model = ir.load(path)
    ir.external_data.load_to_model(model)
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.dtype != ir.DataType.STRING:
                value.const_value = ir.Tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
    infer_missing_shapes(model)
    name_nodes(model)
    return model


def _blocks(scheme: str, wishes: Wishes) -> bool:
    return any(s in SCHEMES and SCHEMES[s].block for s in (scheme, *wishes.nodes.values()))


def _with_blocks(model: ir.Model) -> ir.Model:
    """In the opset whose DequantizeLinear knows blocks; onnxruntime's own does not."""
    try:
        return to_opset(model, _FIRST_OPSET_OF_BLOCKS)
    except Exception as error:
        raise UsageError(
            "weights in blocks need ONNX's opset 21, and the model cannot be brought there",
            why=f"{type(error).__name__}: {error}"[:500],
            next="export the model again with opset 21, or use 16a4w",
        ) from error


def _few(data: CalibrationData) -> list[str]:
    if not too_few(data):
        return []
    return [f"{data.count} samples are too few to hold any out: the figures are from those it was fitted to"]


def _write_decisions(output: Path, document: dict[str, object]) -> None:
    path = output.with_name(f"{output.stem}.quant.json")
    with whole_or_absent(path) as part:
        part.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def _refuse_unknown(scheme: str, effort: str, output: Path) -> None:
    if scheme not in (*SCHEMES, "auto"):
        raise UsageError(f"there is no scheme {scheme!r}", why=f"there are {', '.join(SCHEMES)} and auto")
    if effort not in EFFORTS:
        raise UsageError(f"there is no effort {effort!r}", why=f"there are {', '.join(EFFORTS)}")
    refuse_missing_folder(output)
