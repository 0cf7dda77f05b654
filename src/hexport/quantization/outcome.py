"""What quantising came to: figures, decisions and their reasons, for people, programs and a next time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10

import onnx_ir as ir

from hexport import facts
from hexport.observe.decibels import finite
from hexport.quantization.candidates import Candidate, Trial
from hexport.quantization.curve import on_curve
from hexport.quantization.layers_on_npu import LayerFigure
from hexport.quantization.plan import FLOAT, Plan
from hexport.quantization.switches import Harm
from hexport.quantization.work import all_macs
from hexport.quantization.workshop import Workshop


@dataclass(frozen=True)
class Quantization:
    """The result of ``quantize``."""

    model: str
    output: str
    target: facts.Soc
    scheme: str
    goal_db: float | None
    """What was asked for; None when nothing was."""
    most_drop: float | None
    """What the user's metric may lose; None when there is none."""
    best: Candidate
    tried: tuple[Trial, ...]
    worst: tuple[Harm, ...]
    """The layers that harm most by themselves; empty when the goal was met without looking."""
    layers: tuple[LayerFigure, ...]
    """Layers as they are on the NPU; empty unless they were looked at."""
    float_nodes: dict[str, str]
    """Compute nodes that stay fp16 -> why."""
    mac_shares: dict[str, float]
    """Precision -> its share of the multiply-accumulates, the largest first."""
    bytes_before: int
    bytes_after: int
    seconds: float
    cures: tuple[str, ...]
    """The rules that the model was prepared with; unknown of one that was prepared before."""
    warnings: tuple[str, ...]

    @property
    def float_mac_share(self) -> float:
        """Of the multiply-accumulates, those in fp16."""
        return self.mac_shares.get(str(FLOAT), 0.0)

    @property
    def is_left_out(self) -> bool:
        """Whether the NPU, where it was asked, takes no node of it: then the figures are the CPU's."""
        verdict = self.best.verdict
        return verdict is not None and bool(verdict.nodes.cpu) and not verdict.nodes.npu

    @property
    def met(self) -> bool:
        """Whether it runs on the NPU, and comes as close as was asked for."""
        if self.best.failure or self.is_left_out:
            return False
        if self.most_drop is not None:
            return self.best.drop is not None and self.best.drop <= self.most_drop
        return self.goal_db is None or self.best.sqnr_db >= self.goal_db

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        verdict, npu = self.best.verdict, self.best.npu
        return {
            "schema_version": 1,
            "model": self.model,
            "output": self.output,
            "target": {"name": self.target.chip, "soc_model": self.target.soc_model},
            "scheme": self.scheme,
            "met": self.met,
            "goal_db": self.goal_db,
            "metric_drop": self.best.drop,
            "max_drop": self.most_drop,
            "sqnr_db": finite(self.best.sqnr_db),
            "sqnr_all_db": None if self.best.wide is None else finite(self.best.wide.lowest_db),
            "all_samples": self.best.wide_samples,
            "sqnr_cpu_db": finite(self.best.cpu.lowest_db),
            "outputs": {o.name: finite(o.lowest_db) for o in (npu or self.best.cpu).outputs},
            "chosen": self.best.label,
            "recipe": str(self.best.recipe),
            "precisions": dict(Counter(str(p) for p in self.best.plan.precisions.values())),
            "float_nodes": self.float_nodes,
            "float_mac_share": round(self.float_mac_share, 4),
            "mac_shares": {name: round(share, 4) for name, share in self.mac_shares.items()},
            "nodes": {"npu": verdict.nodes.npu, "cpu": verdict.nodes.cpu} if verdict else None,
            "cpu_nodes": [node.name for node in verdict.cpu_nodes] if verdict else None,
            "partitions": len(verdict.partitions) if verdict else None,
            "failure": self.best.failure,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "seconds": round(self.seconds, 1),
            "candidates": [
                _tried(trial, marked) for trial, marked in zip(self.tried, on_curve(self.tried), strict=True)
            ],
            "worst_layers": [{"nodes": list(h.nodes), "alone_db": finite(alone_db(h))} for h in self.worst],
            "layers_on_npu": {layer.node: finite(layer.sqnr_db) for layer in self.layers},
            "cures": list(self.cures),
            "warnings": list(self.warnings),
        }


def alone_db(harm: Harm) -> float:
    """What the model would come to if only these nodes rounded."""
    noise = float(harm.noise.max())
    return -10 * log10(noise) if noise > 0 else inf


def _tried(trial: Trial, is_on_curve: bool) -> dict[str, object]:
    return {
        "scheme": trial.label,
        "recipe": trial.recipe,
        "cost": trial.cost,
        "on_curve": is_on_curve,
        "sqnr_cpu_db": finite(trial.cpu_db),
        "sqnr_cpu_mean_db": None if trial.mean_db is None else finite(trial.mean_db),
        "sqnr_npu_db": None if trial.npu_db is None else finite(trial.npu_db),
        "sqnr_all_db": None if trial.all_db is None else finite(trial.all_db),
        "metric_drop": trial.drop,
        "fp16_nodes": trial.float_nodes,
        "failure": trial.failure,
    }


def mac_shares(model: ir.Model, plan: Plan) -> dict[str, float]:
    """Precision -> its share of the multiply-accumulates, the largest first."""
    counts: Counter[str] = Counter()
    for name, count in all_macs(model).items():
        counts[str(plan.precisions.get(name, FLOAT))] += count
    total = counts.total()
    return {name: count / total for name, count in counts.most_common() if count}


def float_nodes(model: ir.Model, plan: Plan) -> dict[str, str]:
    """The nodes that compute in fp16, with the reason."""
    macs = all_macs(model)
    return {
        name: plan.reasons.get(name, "")
        for name, precision in plan.precisions.items()
        if precision.activation is None and (macs.get(name) or plan.reasons.get(name))
    }


def ends_of_scores(shop: Workshop, best: Candidate) -> list[str]:
    """Where 8 bits cut results off that the float model does not bound: no figure shows it."""
    made = [(str(value.name), value.producer()) for value in shop.model.graph.outputs]
    types = {name: best.plan.of(node).activation for name, node in made if node is not None}
    narrow = {name: type_ for name, type_ in types.items() if type_ is not None and type_.bits == 8}
    if not narrow:
        # What was observed is not asked for: in fp16 nothing was.
        return []
    of_best = shop.of(best.recipe)
    activations, said = of_best.activations(best.recipe.ranges), []
    for name, type_ in narrow.items():
        if activations.is_open_score(name):
            ends, seen = activations.encoding(name, type_), of_best.histograms[name]
            said.append(
                f"{name} cannot leave {ends.low:.3g} … {ends.high:.3g}, where its 8 bits end; the samples "
                f"gave {seen.low:.3g} … {seen.high:.3g}. If it can be more, calibrate with such samples"
            )
    return said


def decisions(shop: Workshop, best: Candidate, cures: Sequence[str]) -> dict[str, object]:
    """``quant.json``: every range and precision with its reason; it can be given back as an override.

    ``cures``: the rules that made the nodes it names.
    """
    activations = shop.of(best.recipe).activations(best.recipe.ranges)
    tensors: dict[str, object] = {}
    nodes: dict[str, object] = {}
    for node in shop.model.graph:
        precision = best.plan.precisions.get(str(node.name))
        if precision is None:
            continue
        reason = best.plan.reasons.get(str(node.name), "the scheme's own")
        nodes[str(node.name)] = {"op": node.op_type, "scheme": str(precision), "reason": reason}
        if precision.activation is None:
            continue
        for value in node.outputs:
            if activations.knows(str(value.name)):
                encoding = activations.encoding(str(value.name), precision.activation)
                tensors[str(value.name)] = {
                    "low": encoding.low,
                    "high": encoding.high,
                    "scale": float(encoding.scale),
                    "zero_point": encoding.zero_point,
                    "type": precision.activation.name.lower(),
                }
    return {
        "schema_version": 1,
        "recipe": str(best.recipe),
        "cures": list(cures),
        "nodes": nodes,
        "tensors": tensors,
    }
