"""How much of a model may be in another precision than its scheme's, in multiply-accumulates."""

from __future__ import annotations

import onnx_ir as ir

from hexport.quantization.plan import Plan, Precision, fitting, refusal
from hexport.quantization.roles import kind_of, weight_of
from hexport.quantization.work import all_macs

FLOAT_SHARE = 0.10
"""What may stay fp16 inside an integer scheme."""
WIDE_SHARE = 1 / 3
"""What may be in 16 bits inside an 8-bit scheme that was asked for by name."""


def float_macs(model: ir.Model, plan: Plan) -> int:
    """What the plan leaves in fp16."""
    macs = all_macs(model)
    return sum(macs[str(node.name)] for node in model.graph if plan.of(node).activation is None)


def is_within(model: ir.Model, plan: Plan, float_share: float) -> bool:
    """Whether no more than the share is in fp16."""
    return float_macs(model, plan) <= float_share * sum(all_macs(model).values())


def keep_to_share(model: ir.Model, plan: Plan, scheme: Precision, arch: int) -> None:
    """Front ends are spared as far as the share allows: the largest products of them are not."""
    macs = all_macs(model)
    over = float_macs(model, plan) - FLOAT_SHARE * sum(macs.values())
    nodes = [n for n in model.graph if plan.of(n).activation is None and kind_of(n) is not None]
    for node in sorted(nodes, key=lambda n: -macs[str(n.name)]):
        precision = fitting(scheme, has_weights=weight_of(node) is not None)
        if over > 0 and macs[str(node.name)] and not refusal(node, precision, arch):
            plan.set(str(node.name), precision, "it is too large a part of the model for fp16")
            over -= macs[str(node.name)]
