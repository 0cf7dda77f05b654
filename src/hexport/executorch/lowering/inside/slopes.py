"""PReLU with a slope a channel, where tensors are not pictures.

    prelu(x, w)  →  relu(x) − w · relu(−x)

ExecuTorch has the slopes on the wrong axis unless x has four dims: 7 dB in 16a8w, without a word.
"""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.operators import attribute
from hexport.executorch.lowering.inside.stack import stack

_PICTURE = 4


def write_out_slopes(module: Any) -> int:
    """Rewrite them in place; how many there were."""
    aten = stack().aten
    found = [node for node in module.graph.nodes if node.target is aten.prelu.default]
    return sum(_written_out(module, node) for node in found)


def _written_out(module: Any, node: Any) -> bool:
    aten, torch = stack().aten, stack().torch
    x, slope = node.args
    rank = len(x.meta["val"].shape)
    if slope.op != "get_attr" or rank == _PICTURE or attribute(module, slope).numel() == 1:
        return False
    values = attribute(module, slope).detach().reshape(1, -1, *[1] * (rank - 2)).clone()
    name = f"{node.name}_slopes"
    module.register_parameter(name, torch.nn.Parameter(values, requires_grad=False))

    def call(target: Any, *arguments: Any) -> Any:
        made = module.graph.call_function(target, arguments)
        made.meta = dict(node.meta)
        return made

    with module.graph.inserting_before(node):
        slopes = module.graph.get_attr(name)
        slopes.meta = {**slope.meta, "val": x.meta["val"].new_empty(values.shape)}
        below = call(aten.mul.Tensor, call(aten.relu.default, call(aten.neg.default, x)), slopes)
        result = call(aten.sub.Tensor, call(aten.relu.default, x), below)
    node.replace_all_uses_with(result)
    module.graph.erase_node(node)
    return True
