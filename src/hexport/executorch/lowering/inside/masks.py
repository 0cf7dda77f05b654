"""What masks a softmax becomes a moderate number.

    scores ──► add ──► softmax ──► y          scores ──► add ──► softmax ──► y
    mask · −3.4e38 ─┘                         mask · −32 ──┘

The range of the sum decides its steps. Of what fp16 cannot hold ExecuTorch's quantiser makes −65535, −1e4 it
leaves alone: in 16 bits a step is then 1 or more, and scores are a few numbers. exp(−32) is 1e-14, which is
nothing beside the sum of a row. In a row that is masked as a whole the scores show again; nobody reads such a
row. A number that reaches anything else than a softmax is left as it is.

Attention with a mask is written out first: ExecuTorch does so later, with −inf and a test for rows of it.

    scaled_dot_product_attention(q, k, v, mask)  →  softmax(q · scale @ kᵀ + mask) @ v
"""

from __future__ import annotations

import math
from typing import Any

from hexport.executorch.lowering.inside.operators import attribute, base_name
from hexport.executorch.lowering.inside.stack import stack

HUGE, MODERATE = -1e3, -32.0
"""No score is as low as the first; what is, is a mask."""
_MOVING = (
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "flatten",
        "unflatten",
        "transpose",
        "permute",
        "squeeze",
        "unsqueeze",
    ),
    *("expand", "repeat", "slice", "select", "clone", "contiguous", "alias", "detach"),
    *("detach_", "lift_fresh_copy", "to", "_to_copy", "type_as"),
)
_PASSING = (*_MOVING, "add", "add_", "where", "masked_fill", "masked_fill_", "cat")
_GIVING = ("add", "add_", "where", "masked_fill", "masked_fill_", "full", "full_like", "scalar_tensor")
_SOFTMAX = ("softmax", "_softmax")
_DEEPEST = 16
"""Nodes between a mask and the softmax; more than any model has."""
_QUERY, _KEY, _VALUE, _MASK, _DROPOUT, _CAUSAL = range(6)


def moderate_masks(module: Any) -> int:
    """Change them in place; how many there were."""
    found = _write_out_attention(module)
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            found += _moderate_constant(module, node)
        elif node.op == "call_function" and (base_name(node) in _GIVING or _scales_a_mask(node)):
            found += _moderate_numbers(node)
    return found


def _moderate_numbers(node: Any) -> bool:
    places = [place for place, one in enumerate(node.args) if _is_huge(one)]
    if not places or not _reaches_only_softmax(node, _DEEPEST):
        return False
    for place in places:
        node.update_arg(place, MODERATE)
    return True


def _is_huge(number: Any) -> bool:
    return isinstance(number, (int, float)) and number <= HUGE


def _scales_a_mask(node: Any) -> bool:
    """(1 − mask) · −1e4: only where the other factor is 0 or 1."""
    if base_name(node) not in ("mul", "mul_") or not _is_huge(node.args[1]):
        return False
    return _is_zero_or_one(node.args[0], _DEEPEST)


def _moderate_constant(module: Any, node: Any) -> bool:
    torch = stack().torch
    values = attribute(module, node)
    if not torch.is_tensor(values) or not values.is_floating_point() or not bool((values <= HUGE).any()):
        return False
    if not _reaches_only_softmax(node, _DEEPEST):
        return False
    _put(module, node, torch.where(values <= HUGE, MODERATE, values.detach()))
    return True


def _put(module: Any, node: Any, values: Any) -> None:
    """A tensor of its own for ``node`` to get: others may share the old one."""
    name = f"{node.name}_moderate"
    module.register_buffer(name, values)
    node.target = name


def _reaches_only_softmax(node: Any, depth: int) -> bool:
    if depth == 0 or not node.users:
        return False
    return all(
        base_name(user) in _SOFTMAX
        or (base_name(user) in _PASSING and _reaches_only_softmax(user, depth - 1))
        for user in node.users
    )


def _is_zero_or_one(node: Any, depth: int) -> bool:
    """Made from truth values, or from a mask of whole numbers, which everybody writes as 0 and 1."""
    value: Any = getattr(node, "meta", {}).get("val")
    if depth == 0 or not hasattr(value, "dtype"):
        return False
    if not value.dtype.is_floating_point:
        return True
    if node.op != "call_function":
        return False
    name = base_name(node)
    if name in _MOVING:
        return _is_zero_or_one(node.args[0], depth - 1)
    return name == "rsub" and node.args[1] == 1 and _is_zero_or_one(node.args[0], depth - 1)


def _write_out_attention(module: Any) -> int:
    """How many masks were made moderate by it; what is added as it is may be so afterwards."""
    attention = stack().aten.scaled_dot_product_attention.default
    found = 0
    for node in list(module.graph.nodes):
        mask = _mask_of(module, node) if node.target is attention else None
        if mask is not None:
            found += mask is not _argument(node, _MASK)
            _write_out(module, node, mask)
    module.graph.eliminate_dead_code()
    return found


def _mask_of(module: Any, node: Any) -> Any | None:
    """What is added to the scores; None: nothing is, or in a form that is left to ExecuTorch."""
    torch, aten = stack().torch, stack().aten
    mask, dropout, causal = _argument(node, _MASK), _argument(node, _DROPOUT), _argument(node, _CAUSAL)
    if node.kwargs.get("enable_gqa") or dropout:
        return None
    if mask is None and not causal:
        return None
    with module.graph.inserting_before(node):
        if mask is None:
            rows, columns = (node.args[place].meta["val"].shape[-2] for place in (_QUERY, _KEY))
            name = f"{node.name}_causal"
            module.register_buffer(name, torch.full((rows, columns), MODERATE).triu(1))
            found = module.graph.get_attr(name)
            # The quantiser takes only what torch.export's own kind of tensor stands for as a float.
            found.meta = {**node.meta, "val": node.meta["val"].new_empty((rows, columns))}
            return found
        if mask.meta["val"].dtype != torch.bool:
            return mask
        seen = _call(module, node, aten.to.dtype, mask, torch.float32)
        unseen = _call(module, node, aten.sub.Tensor, seen, 1.0)
        return _call(module, node, aten.mul.Tensor, unseen, -MODERATE)


def _argument(node: Any, place: int) -> Any:
    names = {_MASK: "attn_mask", _DROPOUT: "dropout_p", _CAUSAL: "is_causal"}
    return node.args[place] if len(node.args) > place else node.kwargs.get(names[place])


def _write_out(module: Any, node: Any, mask: Any) -> None:
    aten = stack().aten
    query, key, value = node.args[:_MASK]
    scale = node.kwargs.get("scale") or 1 / math.sqrt(query.meta["val"].shape[-1])
    with module.graph.inserting_before(node):
        turned = _call(module, node, aten.transpose.int, key, -2, -1)
        scaled = _call(module, node, aten.mul.Tensor, query, scale)
        scores = _call(module, node, aten.matmul.default, scaled, turned)
        masked = _call(module, node, aten.add.Tensor, scores, mask, like=scores)
        shares = _call(module, node, aten.softmax.int, masked, -1, like=scores)
        result = _call(module, node, aten.matmul.default, shares, value, like=node)
    node.replace_all_uses_with(result)
    module.graph.erase_node(node)


def _call(module: Any, near: Any, target: Any, *args: Any, like: Any = None) -> Any:
    """A new operator, of the user's line that ``near`` is of; what it gives has the form of ``like``."""
    node = module.graph.call_function(target, args)
    values = [one.meta["val"] if hasattr(one, "meta") else one for one in args]
    node.meta = {**near.meta, "val": target(*values) if like is None else like.meta["val"]}
    return node
