"""The plan that a scheme begins with: its own precision for every node that can have it."""

from __future__ import annotations

from hexport.quantization.mixed_ends import keep_mixed_ends
from hexport.quantization.plan import FLOAT, Plan, Precision, plan_for
from hexport.quantization.shares import keep_to_share
from hexport.quantization.workshop import Workshop


def plan_of(shop: Workshop, scheme: Precision, *, has_float: bool) -> Plan:
    """With what was observed of the model: infinities, and ends that one encoding cannot hold."""
    plan = plan_for(shop.model, scheme, shop.arch)
    for node in shop.model.graph:
        if plan.of(node).activation is not None and shop.is_infinite(node):
            plan.set(str(node.name), FLOAT, "it holds infinities, which integers do not have")
    keep_to_share(shop.model, plan, scheme, shop.arch)
    if has_float:
        keep_mixed_ends(shop, plan)
    return plan
