"""The nodes of a graph by their names, and the tensors that some of them get."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

BIASED = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
"""Layers whose third argument is a bias."""
WEIGHT, BIAS = 1, 2


def op_name(node: Any) -> str:
    """``aten.linear.default``, of torch's operators and of those that ExecuTorch makes of them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def base_name(node: Any) -> str:
    """``linear`` of ``aten.linear.default``."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.rpartition("::")[2] if schema is not None else ""


def attribute(module: Any, node: Any) -> Any:
    """The tensor of a node that gets a parameter or a constant."""
    return attrgetter(node.target)(module)
