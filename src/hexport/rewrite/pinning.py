"""Keeping one node on the CPU: it goes into the body of a Loop that runs once, which the NPU never takes.

x ──► Op ──► y          x, 0 ──► Loop(1 step: y = Op(x)) ──► y

onnxruntime's own ways do not serve here: layer annotations (``session.layer_assignment_settings``) end the
session in the partitioner of 1.31.1 when the other nodes go to a plugin, and the provider's
``op_affinity`` moves every node of an operator. Inputs are carried into the loop and not
captured: a captured value makes the layout change of the node before it fail.

Results are carried too, from a 0 that nobody reads, and not stacked: a stacked result needs a Reshape, which
the NPU takes and rounds to fp16. ONNX infers no shape for what a loop carries, so the file declares it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
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
        node = self._node
        carried = _carried(node)
        made = _made(node)
        inputs = [*_ONCE, *(_start(value) for value in made)]
        once, always, *starts = (op.Constant(value=tensor) for tensor in inputs)
        results = op.Loop(
            once,
            always,
            *carried,
            *starts,
            body=_body(node, carried, self._reason),
            _outputs=len(carried) + len(starts),
        )
        for old, new in zip(made, results[len(carried) :], strict=True):
            new.type, new.shape = old.type, old.shape
        results[0].producer().metadata_props[PIN] = self._reason
        return results[len(carried)]


def why_not_pinned(node: ir.Node) -> str:
    """Why a node cannot be pinned; empty when it can."""
    if PIN in node.metadata_props:
        return "it is pinned already"
    bodies = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.type in bodies for attribute in node.attributes.values()):
        return "it has a body, which stays on the CPU anyway"
    values = [value for value in (*node.inputs, *_made(node)) if value is not None]
    if any(not isinstance(value.type, ir.TensorType) for value in values):
        return "an input or output is no tensor of a known type"
    return ""


def pin(node: ir.Node, reason: str, shapes: Mapping[str, Sequence[int]]) -> ir.Node:
    """Put a Loop in the place of ``node``, whatever outputs it has; gives the Loop.

    ``shapes`` has the fixed shapes of its outputs, for those that inference does not tell.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    made = _made(node)
    for value in made:
        if (shape := shapes.get(str(value.name))) is not None:
            value.shape = ir.Shape(shape)
    carried = _carried(node)
    label = f"{made[0].name}.on_cpu"
    tensors = [*_ONCE, *(_start(value) for value in made)]
    once, always, *starts = (_initializer(graph, f"{label}.{i}", tensor) for i, tensor in enumerate(tensors))
    loop = ir.Node(
        "",
        "Loop",
        [once, always, *carried, *starts],
        [ir.AttrGraph("body", _body(node, carried, reason))],
        num_outputs=len(carried) + len(starts),
        name=f"{node.name}.on_cpu",
    )
    loop.metadata_props[PIN] = reason
    for i in range(len(carried)):
        loop.outputs[i].name = f"{label}.kept_{i}"
    results = loop.outputs[len(carried) :]
    ir.convenience.replace_nodes_and_values(graph, node, [node], [loop], made, results)
    return loop


_ONCE = (ir.tensor(np.array(1, np.int64)), ir.tensor(np.array(True)))
"""How many steps, and whether to begin."""


def _made(node: ir.Node) -> list[ir.Value]:
    """The outputs that exist: an optional one that is left out has no name."""
    return [value for value in node.outputs if value.name]


def _carried(node: ir.Node) -> list[ir.Value]:
    """Each input once."""
    return list(dict.fromkeys(value for value in node.inputs if value is not None))


def _start(value: ir.Value) -> ir.TensorProtocol:
    assert value.dtype is not None
    return ir.tensor(np.zeros((), value.dtype.numpy()), dtype=value.dtype)


def _initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    value = _value(name, ir.TensorType(tensor.dtype), ir.Shape([]))
    value.const_value = tensor
    graph.register_initializer(value)
    return value


def _body(node: ir.Node, carried: Sequence[ir.Value], reason: str) -> ir.Graph:
    step = _value("step", ir.TensorType(ir.DataType.INT64), ir.Shape([]))
    more = _value("more", ir.TensorType(ir.DataType.BOOL), ir.Shape([]))
    inner = {value: _value(f"in_{i}", value.type, value.shape) for i, value in enumerate(carried)}
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else inner[value] for value in node.inputs],
        list(node.attributes.values()),
        num_outputs=len(node.outputs),
        name=node.name,
    )
    copy.metadata_props[PIN] = reason
    results: list[ir.Value] = []
    for i, (outside, inside) in enumerate(zip(node.outputs, copy.outputs, strict=True)):
        inside.name, inside.type, inside.shape = "", outside.type, outside.shape
        if outside.name:
            inside.name = f"out_{i}"
            results.append(inside)
    unread = [_value(f"unread_{i}", value.type, None) for i, value in enumerate(results)]
    kept = [ir.Node("", "Identity", [value]) for value in (more, *inner.values())]
    for i, keep in enumerate(kept):
        source = keep.inputs[0]
        assert source is not None
        keep.outputs[0].name, keep.outputs[0].type = f"kept_{i}", source.type
        keep.outputs[0].shape = source.shape
    return ir.Graph(
        [step, more, *inner.values(), *unread],
        [*(keep.outputs[0] for keep in kept), *results],
        nodes=[*kept, copy],
        name=f"{node.name or node.op_type}_on_cpu",
        opset_imports=dict(node.graph.opset_imports) if node.graph is not None else {},
    )


def _value(name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> ir.Value:
    return ir.Value(name=name, type=kind, shape=shape)
