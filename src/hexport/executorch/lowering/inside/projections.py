"""The packed projection of nn.MultiheadAttention as one linear layer each for queries, keys and values.

    linear → unflatten(-1, [3, n]) → unsqueeze(0) → transpose(0, -2) → squeeze(-2) → select(0, i)

Qualcomm's compiler fails on this form in fp16 ("mismatched scale and bias dimensions"), and in integers the
three would share ranges.
"""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.operators import attribute
from hexport.executorch.lowering.inside.stack import stack

_WEIGHT, _BIAS = 1, 2


def unpack_projections(module: Any) -> int:
    """Rewrite them in place; how many there were."""
    aten = stack().aten
    found = [node for node in module.graph.nodes if node.target is aten.linear.default]
    return sum(_unpacked(module, node) for node in found)


def _unpacked(module: Any, linear: Any) -> bool:
    parts = _parts(linear)
    if not parts:
        return False
    size = parts[0].meta["val"].shape[-1]
    for part in parts:
        begin = part.args[2] * size
        operands = [linear.args[0]]
        for place in (_WEIGHT, _BIAS):
            if len(linear.args) > place and linear.args[place] is not None:
                name = f"{linear.name}_{part.args[2]}_{'weight' if place == _WEIGHT else 'bias'}"
                operands.append(_rows(module, linear, place, begin, size, name))
        with module.graph.inserting_before(part):
            own = module.graph.call_function(linear.target, tuple(operands))
        own.meta = {**linear.meta, "val": part.meta["val"]}
        part.replace_all_uses_with(own)
    module.graph.eliminate_dead_code()
    return True


def _rows(module: Any, linear: Any, place: int, begin: int, size: int, name: str) -> Any:
    """The rows of a weight or bias that belong to one of the three, as a parameter of their own."""
    torch = stack().torch
    whole = attribute(module, linear.args[place])
    rows = whole.detach()[begin : begin + size].clone()
    module.register_parameter(name, torch.nn.Parameter(rows, requires_grad=False))
    with module.graph.inserting_before(linear):
        node = module.graph.get_attr(name)
    node.meta = {**linear.args[place].meta, "val": linear.meta["val"].new_empty(rows.shape)}
    return node


def _parts(linear: Any) -> list[Any]:
    """The nodes that select one of the three each; nothing, if the layer is no such projection."""
    aten = stack().aten
    weights = [one for one in linear.args[_WEIGHT : _BIAS + 1] if one is not None]
    if any(getattr(one, "op", "") != "get_attr" for one in weights):
        return []
    node = linear
    for target, arguments in (
        (aten.unflatten.int, (-1,)),
        (aten.unsqueeze.default, (0,)),
        (aten.transpose.int, (0, -2)),
        (aten.squeeze.dim, (-2,)),
    ):
        users = list(node.users)
        if len(users) != 1 or users[0].target is not target:
            return []
        node = users[0]
        if tuple(node.args[1 : 1 + len(arguments)]) != arguments:
            return []
    users = list(node.users)
    if len(users) == 1 and users[0].target in (aten.contiguous.default, aten.clone.default):
        users = list(users[0].users)
    chosen = all(one.target is aten.select.int and one.args[1] == 0 and one.args[2] >= 0 for one in users)
    return users if chosen else []
