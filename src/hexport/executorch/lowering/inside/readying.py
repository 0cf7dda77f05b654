"""What is done to a graph before it is quantised or lowered, so that the NPU can have all of it.

    lstm, gru, rnn       →  their steps, written out: the quantiser leaves the whole layer in float
    unbind, getitem(i)   →  select(i): ExecuTorch decomposes unbind too late, into nodes without ranges
    packed projections   →  a linear layer each for queries, keys and values: the compiler fails on the one
    a mask of a softmax  →  −32 instead of −inf or −1e4, which would leave the scores no steps
    whole numbers        →  cast to floats before they are reshaped: after it the NPU makes zeros of some
    truths as floats     →  by way of whole numbers: the NPU casts no truth to 16 bits
    computed weights     →  parameters
    a slope a channel    →  relu(x) − w · relu(−x), unless x has four dims
    a pool's stride      →  is written down, where it is the kernel's size
    a bias of several    →  a copy each: its scale is that of the layer's own input

Every operator is marked with its name here, which the mark keeps through quantising and lowering.
"""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.computed_weights import settle_weights
from hexport.executorch.lowering.inside.masks import MODERATE, moderate_masks
from hexport.executorch.lowering.inside.operators import BIAS, BIASED, attribute, base_name
from hexport.executorch.lowering.inside.pools import name_strides
from hexport.executorch.lowering.inside.projections import unpack_projections
from hexport.executorch.lowering.inside.slopes import write_out_slopes
from hexport.executorch.lowering.inside.stack import stack

MARK = "hexport"
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def readied(exported: Any) -> tuple[Any, list[str]]:
    """The graph to quantise, and what was done to it."""
    notes: list[str] = []
    module = _with_steps(exported, notes).module()
    _select_instead_of_unbind(module)
    settle_weights(module)
    unpack_projections(module)
    write_out_slopes(module)
    name_strides(module)
    if masks := moderate_masks(module):
        notes.append(
            f"{masks} mask(s) of softmax have {MODERATE:g} where they had less: the scores keep their steps"
        )
    _cast_before_reshaping(module)
    _cast_truths_twice(module)
    _own_biases(module)
    module.graph.lint()
    module.recompile()
    for node in module.graph.nodes:
        node.meta["custom"] = {**(node.meta.get("custom") or {}), MARK: node.name}
    return module, notes


def origin(node: Any) -> str | None:
    """The name that the operator had when the graph was ready; None: it was put in later."""
    found: str | None = (node.meta.get("custom") or {}).get(MARK)
    return found


def _with_steps(exported: Any, notes: list[str]) -> Any:
    """Recurrent layers step by step, and nothing else changed."""
    aten, torch = stack().aten, stack().torch
    layers = {getattr(aten, name).input for name in _RECURRENT}
    found = [node for node in exported.graph.nodes if node.target in layers]
    if not found:
        return exported
    known = torch._decomp.decomposition_table
    names = ", ".join(sorted({base_name(node).upper() for node in found}))
    notes.append(
        f"{len(found)} {names} layer(s) are written out step by step: ExecuTorch has no such operator"
    )
    return exported.run_decompositions({op: known[op] for op in layers})


def _select_instead_of_unbind(module: Any) -> None:
    aten = stack().aten
    for node in list(module.graph.nodes):
        if node.target is not aten.unbind.int:
            continue
        source, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
        for item in list(node.users):
            with module.graph.inserting_before(item):
                part = module.graph.call_function(aten.select.int, (source, axis, item.args[1]))
            part.meta = dict(item.meta)
            item.replace_all_uses_with(part)
            module.graph.erase_node(item)
        module.graph.erase_node(node)


def _cast_before_reshaping(module: Any) -> None:
    """``mask[:, :, None].to(float)`` gives zeros in 16 bits on the simulator, where (…, 1) is its shape."""
    aten = stack().aten
    reshaping = (aten.unsqueeze.default, aten.squeeze.dim, aten.view.default, aten.reshape.default)
    for node in list(module.graph.nodes):
        if node.target is not aten.to.dtype or not node.args[1].is_floating_point:
            continue
        source, moves = node.args[0], []
        while source.target in reshaping and not source.meta["val"].dtype.is_floating_point:
            moves.append(source)
            source = source.args[0]
        made, rest = source, node.args[1:]
        with module.graph.inserting_before(node):
            for target, arguments in (
                (node.target, rest),
                *((move.target, move.args[1:]) for move in reversed(moves)),
            ):
                value = target(made.meta["val"], *arguments)
                made = module.graph.call_function(target, (made, *arguments))
                made.meta = {**node.meta, "val": value}
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()


def _cast_truths_twice(module: Any) -> None:
    torch, aten = stack().torch, stack().aten
    for node in list(module.graph.nodes):
        if node.target is not aten.to.dtype or node.args[0].meta["val"].dtype != torch.bool:
            continue
        if not node.args[1].is_floating_point:
            continue
        with module.graph.inserting_before(node):
            whole = module.graph.call_function(aten.to.dtype, (node.args[0], torch.int32))
        whole.meta = {**node.meta, "val": node.args[0].meta["val"].to(torch.int32)}
        node.update_arg(0, whole)


def _own_biases(module: Any) -> None:
    torch = stack().torch
    seen: set[Any] = set()
    for node in list(module.graph.nodes):
        bias = bias_of(node)
        if bias is None:
            continue
        if bias.target in seen:
            name = f"{node.name}_own_bias"
            module.register_parameter(
                name, torch.nn.Parameter(attribute(module, bias).detach().clone(), requires_grad=False)
            )
            with module.graph.inserting_before(node):
                own = module.graph.get_attr(name)
            own.meta = dict(bias.meta)
            node.update_arg(BIAS, own)
        seen.add(bias.target)


def bias_of(node: Any) -> Any | None:
    """The node that gets the bias of a layer, if it has one that is a parameter."""
    if node.op != "call_function" or base_name(node) not in BIASED or len(node.args) <= BIAS:
        return None
    bias = node.args[BIAS]
    return bias if bias is not None and getattr(bias, "op", "") == "get_attr" else None
