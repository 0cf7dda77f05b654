"""Who reads a value, without the nodes that an earlier replacement left behind."""

from __future__ import annotations

import onnx_ir as ir


def readers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read it and whose results are wanted: what is left behind goes when all is done."""
    return [node for node in value.consumers() if any(_is_wanted(made) for made in node.outputs)]


def only_for(value: ir.Value, node: ir.Node) -> bool:
    """Whether ``node`` alone reads the value."""
    return not value.is_graph_output() and all(reader is node for reader in readers(value))


def maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes the value, if it is one of ONNX's operators ``op_types``."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def _is_wanted(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())
