"""Tensors whose channels can be scaled without changing the model: who makes them, and who reads them.

W/s ──► Conv ──► x/s ──► Relu ──► MaxPool ──┬─► Conv ◄── W·s
                                            └─► Conv ◄── W'·s

What lies between must give s·f(x) for f(s·x); at its ends must be constants that take the factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import onnx_ir as ir

from hexport.quantization.absorbing import clips_below_zero
from hexport.quantization.roles import ONNX_DOMAINS, weight_of
from hexport.rewrite.values import constant, fixed_shape, scalar

_ANY_AXIS = ("Relu", "LeakyRelu", "PRelu", "Clip")
_ACROSS_PLACES = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Pad")
_SAME_ORDER = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
Place = tuple[ir.Value, int]
"""A tensor and the axis of its channels."""


@dataclass
class Group:
    """All tensors that have to have one factor a channel in common."""

    axes: dict[ir.Value, int] = field(default_factory=dict)
    producers: dict[ir.Node, None] = field(default_factory=dict)
    """Constants of these are divided."""
    readers: dict[ir.Node, None] = field(default_factory=dict)
    """Weights of these are multiplied."""
    shifts: dict[ir.Node, None] = field(default_factory=dict)
    """Additions of a constant, which is divided."""
    factors: dict[ir.Node, int] = field(default_factory=dict)
    """Products with another activation, and the input that is scaled."""

    @property
    def channels(self) -> int:
        value, axis = next(iter(self.axes.items()))
        shape = fixed_shape(value)
        assert shape is not None
        return shape[axis]


def groups_of(model: ir.Model) -> list[Group]:
    """Every group, in the order of the graph; no tensor is in two."""
    found: list[Group] = []
    seen: set[ir.Value] = set()
    for node in model.graph:
        value = node.outputs[0]
        axis = _made_axis(node)
        if axis is None or value in seen:
            continue
        group = _Walk(model.graph).from_((value, axis))
        if group is not None and group.readers:
            found.append(group)
            seen.update(group.axes)
    return found


class _Walk:
    """From one tensor to all that are tied to it, up and down."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph, self._group = graph, Group()

    def from_(self, start: Place) -> Group | None:
        waiting, axes = [start], self._group.axes
        while waiting:
            value, axis = waiting.pop()
            if value in axes:
                if axes[value] != axis:
                    return None
                continue
            axes[value] = axis
            tied = self._neighbours(value, axis)
            if tied is None:
                return None
            waiting += tied
        for node, index in self._group.factors.items():
            # Both operands scaled would be the square.
            if node.inputs[1 - index] in axes:
                return None
        return self._group

    def _neighbours(self, value: ir.Value, axis: int) -> list[Place] | None:
        node = value.producer()
        shape = fixed_shape(value)
        if node is None or shape is None or value.dtype != ir.DataType.FLOAT or value.is_graph_output():
            return None
        found = self._up(node, axis)
        for user, index in value.uses():
            below = self._down(user, index, value, axis) if user.graph is self._graph else None
            found = None if found is None or below is None else [*found, *below]
        return found

    def _up(self, node: ir.Node, axis: int) -> list[Place] | None:
        if _made_axis(node) == axis:
            self._group.producers[node] = None
            return []
        if node.op_type == "Mul" and node not in self._group.factors:
            fitting = [i for i in (0, 1) if _is_whole(node, i) and constant(node.inputs[i]) is None]
            if not fitting:
                return None
            self._group.factors[node] = fitting[0]
        return self._through(node, axis)

    def _down(self, node: ir.Node, index: int, value: ir.Value, axis: int) -> list[Place] | None:
        if _read_axis(node, value) == axis and index == 0:
            self._group.readers[node] = None
            return []
        if node.op_type == "Mul":
            if not _is_whole(node, index) or self._group.factors.setdefault(node, index) != index:
                return None
        elif node.op_type != "Add" and index != 0:
            return None
        onward = node.outputs[0]
        place = _axis_after(node, value, axis)
        return None if place is None else [(onward, place)]

    def _through(self, node: ir.Node, axis: int) -> list[Place] | None:
        """What must be scaled for the node's result to be, along ``axis``."""
        if node.domain not in ONNX_DOMAINS:
            return None
        if node.op_type == "Add":
            return self._summands(node, axis)
        source = node.inputs[self._group.factors.get(node, 0)]
        if source is None or constant(source) is not None:
            return None
        shape = fixed_shape(source)
        before = [a for a in range(len(shape or ())) if _axis_after(node, source, a) == axis]
        if len(before) != 1:
            return None
        return [(source, before[0])]

    def _summands(self, node: ir.Node, axis: int) -> list[Place] | None:
        places: list[Place] = []
        for index, value in enumerate(node.inputs):
            if value is None:
                return None
            if constant(value) is not None:
                self._group.shifts[node] = None
            elif _is_whole(node, index):
                places.append((value, axis))
            else:
                return None
        return places


def is_depthwise(node: ir.Node) -> bool:
    """Whether every channel that it reads has weights, and scales, of its own."""
    weight = constant(node.inputs[1])
    group = node.attributes.get_int("group", 1)
    return node.op_type == "Conv" and weight is not None and weight.shape[1] == 1 and group > 1


def _made_axis(node: ir.Node) -> int | None:
    """The axis of the channels that the node's constants can scale; None when they cannot."""
    shape = fixed_shape(node.outputs[0])
    if node.domain not in ONNX_DOMAINS or not shape or not _own_constants(node):
        return None
    if node.op_type in ("Conv", "BatchNormalization"):
        return 1
    if node.op_type in ("Gemm", "MatMul"):
        return len(shape) - 1
    if node.op_type == "LayerNormalization" and len(node.outputs) == 1:
        axis = node.attributes.get_int("axis", -1)
        return len(shape) - 1 if axis in (-1, len(shape) - 1) else None
    return None


def _read_axis(node: ir.Node, value: ir.Value) -> int | None:
    """The axis that the node sums over with weights of its own."""
    shape = fixed_shape(value)
    if node.domain not in ONNX_DOMAINS or not shape or weight_of(node) is None or not _own_constants(node):
        return None
    if node.op_type == "Conv":
        return 1
    if node.op_type in ("Gemm", "MatMul") and not node.attributes.get_int("transA", 0):
        return len(shape) - 1
    return None


def _own_constants(node: ir.Node) -> bool:
    """Whether it has constants, and shares none with another node, which would be changed with it."""
    if node.op_type in ("Conv", "Gemm", "MatMul"):
        if weight_of(node) is None:
            return False
        needed = node.inputs[1:]
    elif node.op_type == "BatchNormalization":
        needed = node.inputs[1:3]
    elif node.op_type == "LayerNormalization":
        needed = node.inputs[1:]
    else:
        return False
    given = [value for value in needed if value is not None]
    return all(value.is_initializer() and len(value.uses()) == 1 for value in given)


def _axis_after(node: ir.Node, source: ir.Value, axis: int) -> int | None:
    """Where the channels of ``source`` are in the node's result; None when it mixes or moves them apart."""
    before, after = fixed_shape(source), fixed_shape(node.outputs[0])
    if node.domain not in ONNX_DOMAINS or before is None or after is None:
        return None
    if node.op_type in ("Add", "Mul"):
        return axis if before == after else None
    if node.op_type in _ANY_AXIS:
        return axis if _is_homogeneous(node) else None
    if node.op_type in _ACROSS_PLACES:
        return axis if axis == 1 and before[1] == after[1] and _is_homogeneous(node) else None
    if node.op_type == "Transpose":
        order = node.attributes.get_ints("perm", list(reversed(range(len(before)))))
        return list(order).index(axis)
    if node.op_type in _SAME_ORDER:
        outer = prod(before[:axis])
        fitting = [i for i, size in enumerate(after) if size == before[axis] > 1 and prod(after[:i]) == outer]
        return fitting[0] if fitting else None
    return None


def _is_homogeneous(node: ir.Node) -> bool:
    if node.op_type == "Clip":
        # A bound above would have to be another for each channel; leaving it where it is, far above what was
        # seen, cost EfficientNet-Lite0 half its decibels on samples it was not fitted to.
        return clips_below_zero(node) and (len(node.inputs) < 3 or node.inputs[2] is None)
    if node.op_type == "PRelu":
        return constant(node.inputs[1]) is not None
    if node.op_type == "MaxPool":
        return len(node.outputs) == 1
    if node.op_type == "Pad":
        filled = node.inputs[2] if len(node.inputs) > 2 else None
        return filled is None or scalar(filled) == 0.0
    return True


def _is_whole(node: ir.Node, index: int) -> bool:
    """Whether the operand has the shape of the result, so that nothing of it is repeated."""
    return fixed_shape(node.inputs[index]) == fixed_shape(node.outputs[0])
