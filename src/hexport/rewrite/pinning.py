"""Keeping one node on the CPU: it goes into the body of a Loop that runs once, which the NPU never takes.

x ──► Op ──► y          x ──► Loop(1 step: Op) ──► Reshape ──► y

onnxruntime's own ways do not serve here: layer annotations (``session.layer_assignment_settings``) end the
session in the partitioner of 1.31.1 when the other nodes go to a plugin, and the provider's
``op_affinity`` moves every node of an operator. Inputs are carried into the loop and not
captured: a captured value makes the layout change of the node before it fail.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import fixed_shape

PIN = "hexport.pin"
"""The metadata key, on the Loop and on the node in it, whose value is the reason."""


class PinRule(Rule):
    """A rule that keeps nodes of one operator with one output on the CPU, when ``fault`` names a reason."""

    purpose: ClassVar[Purpose] = Purpose.FAULT
    op_type: ClassVar[str]

    @abstractmethod
    def fault(self, node: ir.Node) -> str:
        """What the compiler does wrong with this node; empty when nothing."""

    def pattern(self, op: Any, x: Any) -> Any:
        build = getattr(op, self.op_type)
        return build(x, _allow_other_inputs=True, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        node = context.root
        if PIN in node.metadata_props:
            return result.fail("it is pinned already", node)
        if fixed_shape(y) is None:
            return result.fail("the shape of the output is not fixed, so it stays on the CPU anyway", y)
        if any(value is not None and value.type is None for value in node.inputs):
            return result.fail("the type of an input is not known", node)
        if not (reason := self.fault(node)):
            return result.fail("the compiler computes this form right", node)
        self._node, self._reason = node, reason
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        return pinned(op, self._node, self._reason)


def pinned(op: Any, node: ir.Node, reason: str) -> Any:
    """The one output of ``node``, computed in a loop of one step."""
    carried = [value for value in node.inputs if value is not None]
    once = op.Constant(value=ir.tensor(np.array(1, np.int64)))
    always = op.Constant(value=ir.tensor(np.array(True)))
    body = _body(node, carried, reason)
    results = op.Loop(once, always, *carried, body=body, _outputs=len(carried) + 1)
    stacked: ir.Value = results[-1]
    producer = stacked.producer()
    assert producer is not None
    producer.metadata_props[PIN] = reason
    shape = fixed_shape(node.outputs[0])
    assert shape is not None
    return op.Reshape(stacked, op.Constant(value=ir.tensor(np.array(shape, np.int64))))


def _body(node: ir.Node, carried: list[ir.Value], reason: str) -> ir.Graph:
    step = _value("step", ir.TensorType(ir.DataType.INT64), ir.Shape([]))
    more = _value("more", ir.TensorType(ir.DataType.BOOL), ir.Shape([]))
    inner = {id(value): _value(f"in_{i}", value.type, value.shape) for i, value in enumerate(carried)}
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else inner[id(value)] for value in node.inputs],
        list(node.attributes.values()),
        num_outputs=1,
        name=node.name,
    )
    copy.metadata_props[PIN] = reason
    y = copy.outputs[0]
    y.name, y.type, y.shape = "out", node.outputs[0].type, node.outputs[0].shape
    kept = [ir.Node("", "Identity", [value]) for value in (more, *inner.values())]
    for i, keep in enumerate(kept):
        source = keep.inputs[0]
        assert source is not None
        keep.outputs[0].name, keep.outputs[0].type = f"kept_{i}", source.type
        keep.outputs[0].shape = source.shape
    return ir.Graph(
        [step, more, *inner.values()],
        [*(keep.outputs[0] for keep in kept), y],
        nodes=[*kept, copy],
        name=f"{node.name or node.op_type}_on_cpu",
        opset_imports=dict(node.graph.opset_imports) if node.graph is not None else {},
    )


def _value(name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> ir.Value:
    return ir.Value(name=name, type=kind, shape=shape)
