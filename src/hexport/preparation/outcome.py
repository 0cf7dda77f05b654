"""What became of a model: before and after, what was done, and what remains with its reasons."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from hexport import facts
from hexport.model.dims import Shape
from hexport.observe.comparing import Comparison
from hexport.observe.decibels import finite
from hexport.preparation.fp16_watch import Fp16Danger
from hexport.preparation.pipeline import Standing
from hexport.preparation.repro import Repro
from hexport.preparation.workbench import Attempt
from hexport.records import to_plain
from hexport.rewrite.catalogue import rule_names
from hexport.rewrite.pinning import PIN


@dataclass(frozen=True)
class Pin:
    """A node that is kept on the CPU on purpose, because the NPU computes it wrongly or dies of it."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class Preparation:
    """The report of ``prepare``."""

    model: str
    output: str
    target: facts.Soc
    input_shapes: dict[str, Shape]
    frozen: dict[str, str]
    before: Standing
    after: Standing
    attempts: tuple[Attempt, ...]
    warnings: tuple[str, ...]
    pins: tuple[Pin, ...] = ()
    dangers: tuple[Fp16Danger, ...] = ()
    """What fp16 cannot hold on the samples, cured or not."""
    data: str = ""
    """The file with the weights, when they are too large for ``output`` itself."""
    repro: Repro | None = None
    """The smallest piece that fails, when the model does not compile."""

    @property
    def full(self) -> bool:
        """Every node is on the NPU."""
        return self.after.verdict is not None and self.after.verdict.full

    @property
    def cures(self) -> tuple[str, ...]:
        """The rules that changed it, by which another size can be given the same form."""
        known = rule_names()
        return tuple(attempt.name for attempt in self.attempts if attempt.kept and attempt.name in known)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "model": self.model,
            "output": self.output,
            "data": self.data,
            "repro": to_plain(self.repro),
            "target": {
                "name": self.target.chip,
                "soc_model": self.target.soc_model,
                "htp_arch": self.target.htp_arch,
            },
            "input_shapes": to_plain(self.input_shapes),
            "full": self.full,
            "before": _standing(self.before),
            "after": _standing(self.after),
            "attempts": to_plain(self.attempts),
            "cures": list(self.cures),
            "pins": to_plain(self.pins),
            "fp16": to_plain(self.dangers),
            "warnings": list(self.warnings),
        }


def find_pins(model: ir.Model) -> tuple[Pin, ...]:
    """The nodes that rules put on the CPU, which are inside a Loop of one step."""
    return tuple(
        Pin(str(node.name), node.op_type, node.metadata_props[PIN])
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        if PIN in node.metadata_props and not _holds_bodies(node)
    )


def _holds_bodies(node: ir.Node) -> bool:
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def _standing(standing: Standing) -> dict[str, object]:
    return {
        "verdict": standing.verdict.to_json() if standing.verdict else None,
        "failure": standing.failure.to_json() if standing.failure else None,
        **_quality(standing.htp),
    }


def _quality(htp: Comparison | None) -> dict[str, object]:
    if htp is None:
        return {"sqnr_db": None, "agreement": None, "outputs": []}
    outputs = [
        to_plain(output)
        | {
            "sqnr_db": finite(output.sqnr_db),
            "lowest_db": finite(output.lowest_db),
            "mean_db": finite(output.mean_db),
            "worst_error": finite(output.worst_error),
            "agreement": to_plain(output.agreement),
        }
        for output in htp.outputs
    ]
    return {"sqnr_db": finite(htp.sqnr_db), "agreement": to_plain(htp.agreement), "outputs": outputs}
