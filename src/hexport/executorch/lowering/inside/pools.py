"""Pools whose stride is left out, because it is the kernel's size: ExecuTorch asks for it all the same."""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.stack import stack

_KERNEL, _STRIDE = 1, 2


def name_strides(module: Any) -> None:
    """Give every pool its stride; ExecuTorch ends in ``IndexError: tuple index out of range`` without one."""
    aten = stack().aten
    pools = (
        aten.max_pool1d.default,
        aten.max_pool2d.default,
        aten.max_pool3d.default,
        aten.max_pool2d_with_indices.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.avg_pool3d.default,
    )
    for node in module.graph.nodes:
        if node.target in pools and not (len(node.args) > _STRIDE and node.args[_STRIDE]):
            node.args = (*node.args[:_STRIDE], node.args[_KERNEL], *node.args[_STRIDE + 1 :])
