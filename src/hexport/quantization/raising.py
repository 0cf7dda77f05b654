"""What single nodes can be raised to, with what each precision would harm there and cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from hexport.quantization.absorbing import clips_below_zero
from hexport.quantization.candidates import Candidate
from hexport.quantization.encoding import QType
from hexport.quantization.judging import Judge
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, fitting, refusal, users
from hexport.quantization.promoting import Noise, Option
from hexport.quantization.roles import kind_of
from hexport.quantization.switches import Harm, harms
from hexport.quantization.work import all_macs, cost
from hexport.quantization.workshop import Workshop


def better_than(scheme: Precision, *, has_float: bool) -> list[Precision]:
    """What single nodes can be raised to, the cheapest first: more bits, then fp16 if the chip has it."""
    if scheme.activation is QType.U8:
        wider = [SCHEMES["16a8w"]]
    elif scheme.weight is QType.S4:
        wider = [SCHEMES["16a8w"], SCHEMES["16a16w"]]
    else:
        wider = [SCHEMES["16a16w"]] if scheme.weight is QType.S8 else []
    return [*wider, FLOAT] if has_float else wider


def harms_of(start: Candidate, shop: Workshop, judge: Judge) -> list[Harm]:
    """What each node of the candidate harms by itself, on the samples that are worst with it."""
    return _harms(start, start.plan, shop, judge)


def options_for(
    start: Candidate, measured: Sequence[Harm], to: Sequence[Precision], shop: Workshop, judge: Judge
) -> dict[tuple[str, ...], list[Option]]:
    """What can be raised, and to what; first what it is. Nodes that share their weights go together."""
    macs = all_macs(shop.model)
    nodes = {str(node.name): node for node in shop.model.graph}
    better = {p: _harms_in(start, p, shop, judge) for p in to if p.activation is not None}
    options: dict[tuple[str, ...], list[Option]] = {}
    for harm in measured:
        first = nodes[harm.nodes[0]]
        known = kind_of(first)
        if known is None or known.kind == "moving":
            continue
        now = start.plan.of(first)
        options[harm.nodes] = [Option(now, harm.noise, sum(cost(nodes[n], now) for n in harm.nodes))]
        for precision in to:
            then = fitting(precision, has_weights=now.weight is not None)
            if then == now or any(refusal(nodes[name], then, shop.arch) for name in harm.nodes):
                continue
            noise = better[precision][harm.nodes] if precision in better else np.zeros_like(harm.noise)
            count = sum(macs[name] for name in harm.nodes)
            price = sum(cost(nodes[name], then) for name in harm.nodes)
            counts = (count, 0) if then.activation is None else (0, count)
            options[harm.nodes].append(Option(then, noise, price, *counts))
    return options


def take_along(model: ir.Model, plan: Plan, name: str) -> None:
    """What cuts off its results below 0 goes with it: in integers it would only round them once more."""
    node = next(node for node in model.graph if node.name == name)
    readers = users(node.outputs)
    if len(readers) == 1 and clips_below_zero(readers[0]) and plan.of(readers[0]).activation is not None:
        plan.set(str(readers[0].name), Precision(plan.of(node).activation), f"it belongs to {name}")


def _harms_in(
    start: Candidate, precision: Precision, shop: Workshop, judge: Judge
) -> dict[tuple[str, ...], Noise]:
    """The harm of the same nodes in another precision."""
    plan = start.plan.copy()
    for name, now in start.plan.precisions.items():
        if now.activation is not None:
            plan.precisions[name] = fitting(precision, has_weights=now.weight is not None)
    return {harm.nodes: harm.noise for harm in _harms(start, plan, shop, judge)}


def _harms(start: Candidate, plan: Plan, shop: Workshop, judge: Judge) -> list[Harm]:
    shop, samples = shop.of(start.recipe), [judge.samples[start.cpu.worst_sample], *judge.hard[0]]
    integers, activations = shop.integers(plan, start.recipe), shop.activations(start.recipe.ranges)
    return harms(shop.model, plan, activations, integers, samples, judge.folder, shop.arch)
