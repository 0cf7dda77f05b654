"""Weights that a module computes from its parameters at every call, weight_norm's for instance, are made now.

ExecuTorch takes a weight that is no parameter for an activation, and its convolutions fail on it.
"""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.operators import BIAS, BIASED, WEIGHT, attribute, base_name
from hexport.executorch.lowering.inside.stack import stack


def settle_weights(module: Any) -> int:
    """Make them parameters; how many there were."""
    count = 0
    for node in list(module.graph.nodes):
        if node.op != "call_function" or base_name(node) not in BIASED:
            continue
        for place in (WEIGHT, BIAS):
            weight: Any = node.args[place] if len(node.args) > place else None
            if getattr(weight, "op", "") != "call_function" or not _is_settled(weight):
                continue
            name = f"{node.name}_{'weight' if place == WEIGHT else 'bias'}_settled"
            value = _value(module, weight).contiguous()
            module.register_parameter(name, stack().torch.nn.Parameter(value, requires_grad=False))
            with module.graph.inserting_before(node):
                own = module.graph.get_attr(name)
            own.meta = dict(weight.meta)
            node.update_arg(place, own)
            count += 1
    if count:
        module.graph.eliminate_dead_code()
    return count


def _is_settled(node: Any) -> bool:
    """Whether nothing but parameters goes into it."""
    if node.op == "get_attr":
        return True
    return (
        node.op == "call_function"
        and bool(node.all_input_nodes)
        and all(_is_settled(one) for one in node.all_input_nodes)
    )


def _value(module: Any, node: Any) -> Any:
    if node.op == "get_attr":
        return attribute(module, node).detach()
    known = stack().torch
    args, kwargs = known.fx.node.map_arg((node.args, node.kwargs), lambda one: _value(module, one))
    with known.no_grad():
        return node.target(*args, **kwargs)
