"""Relu and its like vanish into the encoding of the node before: integers from 0 on cut at 0 anyway.

x ──► Conv ──► Relu ──► y          x ──► Conv ──► y, whose encoding begins at 0
"""

from __future__ import annotations

import onnx_ir as ir

from hexport.quantization.activations import Activations
from hexport.quantization.encoding import QType
from hexport.quantization.plan import Plan
from hexport.quantization.roles import kind_of
from hexport.rewrite.values import scalar

_BEYOND = 1 + 1e-4
"""A scale is a float32: the last integer may stand for a little more than the bound."""
_COMPUTING = ("weighted", "product", "norm", "elementwise")


def absorb(model: ir.Model, plan: Plan, activations: Activations | None = None) -> None:
    """Remove what only cuts at 0 after an integer node that nobody else reads.

    With ``activations``, only where the encoding does cut: a range that the user gave may begin elsewhere.
    """
    for node in list(model.graph):
        producer, type_ = _absorbing(node, plan), plan.of(node).activation
        if producer is None or type_ is None or not _cuts(node, type_, activations):
            continue
        before, after = producer.outputs[0], node.outputs[0]
        name = after.name
        after.replace_all_uses_with(before, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        # The name decides the encoding: the one of what was cut.
        before.name = name


def clips_below_zero(node: ir.Node) -> bool:
    """Whether all the node does is to cut at 0, and perhaps above."""
    if node.op_type == "Relu":
        return True
    return node.op_type == "Clip" and len(node.inputs) > 1 and scalar(node.inputs[1]) == 0.0


def _cuts(node: ir.Node, type_: QType, activations: Activations | None) -> bool:
    """Whether the encoding of the result does all that the node does."""
    value = node.outputs[0]
    if activations is None:
        return value.dtype == ir.DataType.FLOAT
    if not activations.knows(str(value.name)):
        return False
    encoding = activations.encoding(str(value.name), type_)
    most = scalar(node.inputs[2]) if len(node.inputs) > 2 else None
    return encoding.low >= 0 and (most is None or encoding.high <= most * _BEYOND)


def _absorbing(node: ir.Node, plan: Plan) -> ir.Node | None:
    value = node.inputs[0] if node.inputs else None
    if not clips_below_zero(node) or value is None or value.is_graph_output():
        return None
    producer = value.producer()
    if producer is None or len(value.uses()) != 1 or len(producer.outputs) != 1:
        return None
    known, mine = kind_of(producer), plan.of(node).activation
    computes = known is not None and known.kind in _COMPUTING and not known.range
    return producer if computes and mine is not None and mine is plan.of(producer).activation else None
