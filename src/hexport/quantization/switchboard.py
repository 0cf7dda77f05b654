"""The model with a switch for every node's rounding, which ``switches.py`` turns on and off.

y ──► If(switch) ─┬─ then: Q ──► DQ ─┬──► readers      the same for what enters from a float node
                  └─ else: y ────────┘               weights: Where(switch, rounded, weight)

Building a session for each node would take minutes; here each node costs one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.quantization.activations import Activations, encode_constant
from hexport.quantization.coarse_sums import Grains, coarse_sum
from hexport.quantization.emitting import reading_type
from hexport.quantization.encoding import Encoding, QType
from hexport.quantization.initializers import add_initializer
from hexport.quantization.plan import Plan
from hexport.quantization.roles import Role, role_of
from hexport.quantization.weights import LayerIntegers, bias_integers
from hexport.rewrite.values import constant, fixed_shape

SWITCHES = "hexport_switches"
"""The input that says which are on: one for each unit, in their order."""


def switchboard(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    units: Sequence[tuple[str, ...]],
    arch: int,
) -> ir.Model:
    """A copy that rounds where its switches say; nodes of one unit have one switch."""
    copy = model.clone()
    graph = copy.graph
    switches = ir.val(SWITCHES, ir.DataType.BOOL, [len(units)])
    graph.inputs.append(switches)
    board = _Board(graph, switches, arch)
    made = {str(v.name): type_ for n in graph if (type_ := plan.of(n).activation) for v in n.outputs}
    numbers = {name: index for index, names in enumerate(units) for name in names}
    for node in list(graph):
        type_ = plan.of(node).activation
        if type_ is None or str(node.name) not in numbers:
            continue
        switch = board.switch(node, numbers[str(node.name)])
        roles = [role_of(node, index) for index in range(len(node.inputs))]
        data = _data_encoding(board, node, type_, activations)
        grains = _grains(node, weights, data)
        for index, role in enumerate(roles):
            value = node.inputs[index]
            if value is None or role is Role.PARAMETER:
                continue
            if role is Role.BIAS:
                read = _bias(board, node, switch, value, grains)
            else:
                read = _switched(board, node, switch, value, role, type_, activations, weights, made)
            if read is not None:
                node.replace_input_with(index, read)
        for value in node.outputs:
            if value.dtype == ir.DataType.FLOAT and activations.knows(str(value.name)):
                encoding = activations.encoding(str(value.name), type_)
                shown = grains is not None and grains.shows(float(encoding.scale))
                board.choose_after(node, switch, value, encoding, grains if shown else None)
    return copy


def _switched(
    board: _Board,
    node: ir.Node,
    switch: ir.Value,
    value: ir.Value,
    role: Role,
    type_: QType,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    made: Mapping[str, QType],
) -> ir.Value | None:
    """What the node reads, rounded or not; None when the one that makes it has rounded it already."""
    if role is Role.WEIGHT:
        return board.choose(node, switch, board.weight(weights[str(node.name)]), value)
    wanted = reading_type(node, role, type_, board.arch)
    if (array := constant(value)) is not None:
        encoding = encode_constant(array, wanted)
        rounded = board.constant(encoding.reals(encoding.integers(array)))
        return board.choose(node, switch, rounded, value)
    name = board.names.get(value, str(value.name))
    if not activations.knows(name) or made.get(name) is wanted:
        return None
    rounding = board.rounding(switch, value, activations.encoding(name, wanted))
    board.graph.insert_before(node, rounding)
    return rounding.outputs[0]


def _data_encoding(board: _Board, node: ir.Node, type_: QType, activations: Activations) -> Encoding | None:
    """How the node reads its first input; to be asked before that is replaced."""
    value = node.inputs[0]
    if value is None:
        return None
    if (array := constant(value)) is not None:
        return encode_constant(array, type_)
    name = board.names.get(value, str(value.name))
    return activations.encoding(name, type_) if activations.knows(name) else None


def _grains(node: ir.Node, weights: Mapping[str, LayerIntegers], data: Encoding | None) -> Grains | None:
    """What the HTP makes of a layer's sum and of its bias, as that was corrected for the rounded weights."""
    layer = weights.get(str(node.name))
    if layer is None or layer.bias is None or layer.encoding.block or data is None:
        return None
    integers, encoding = bias_integers(layer.bias.reshape(-1), layer.encoding, float(data.scale))
    cut = coarse_sum(node, data.type, data.zero_point, layer.encoding.type, layer.integers)
    return cut.grains(cut.made_up(integers), encoding.scale)


def _bias(
    board: _Board, node: ir.Node, switch: ir.Value, value: ir.Value, grains: Grains | None
) -> ir.Value | None:
    shape = fixed_shape(value)
    if grains is None or shape is None:
        return None
    stored = grains.bias.astype(np.float32)
    on = board.constant(stored if stored.size != prod(shape) else stored.reshape(shape))
    return board.choose(node, switch, on, value)


class _Board:
    """The graph with its switches."""

    def __init__(self, graph: ir.Graph, switches: ir.Value, arch: int) -> None:
        self.graph, self.switches, self.arch = graph, switches, arch
        self._taken: dict[int, ir.Value] = {}
        self._layers: dict[int, ir.Value] = {}
        self._count = 0
        self.names: dict[ir.Value, str] = {}
        """What is chosen -> the tensor it stands for."""

    def constant(self, array: NDArray[Any]) -> ir.Value:
        self._count += 1
        return add_initializer(
            self.graph, f"hexport_switched_{self._count}", ir.tensor(np.asarray(array, order="C"))
        )

    def weight(self, layer: LayerIntegers) -> ir.Value:
        """One constant for all the nodes that share the integers: unrolled steps are hundreds."""
        key = id(layer.integers)
        if key not in self._layers:
            self._layers[key] = self.constant(layer.weight)
        return self._layers[key]

    def switch(self, node: ir.Node, number: int) -> ir.Value:
        if number not in self._taken:
            gather = ir.node("Gather", [self.switches, self.constant(np.array(number, np.int64))])
            gather.outputs[0].name = f"hexport_switch_{number}"
            self.graph.insert_before(node, gather)
            self._taken[number] = gather.outputs[0]
        return self._taken[number]

    def rounding(
        self, switch: ir.Value, value: ir.Value, encoding: Encoding, grains: Grains | None = None
    ) -> ir.Node:
        """An If: what is switched off costs no more than a copy."""
        cut = [] if grains is None else self._named(grains.nodes(value, self.constant))
        on = cut + self._fake(cut[-1].outputs[0] if cut else value, encoding)
        off = ir.node("Identity", [value])
        branches = {}
        for name, nodes in (("then_branch", on), ("else_branch", [off])):
            result = nodes[-1].outputs[0]
            self._count += 1
            result.name = f"hexport_fake_{self._count}"
            result.dtype, result.shape = ir.DataType.FLOAT, value.shape
            branches[name] = ir.Graph([], [result], nodes=nodes, name=f"{name}_{self._count}")
        made = ir.node("If", [switch], attributes=branches)
        self._count += 1
        made.outputs[0].name = f"hexport_rounded_{self._count}"
        return made

    def choose(self, node: ir.Node, switch: ir.Value, on: ir.Value, off: ir.Value) -> ir.Value:
        where = ir.node("Where", [switch, on, off])
        self._count += 1
        where.outputs[0].name = f"hexport_choice_{self._count}"
        self.graph.insert_before(node, where)
        return where.outputs[0]

    def choose_after(
        self, node: ir.Node, switch: ir.Value, value: ir.Value, encoding: Encoding, grains: Grains | None
    ) -> None:
        users = list(value.uses())
        rounding = self.rounding(switch, value, encoding, grains)
        result, name = rounding.outputs[0], value.name
        self.graph.insert_after(node, rounding)
        for user, index in users:
            user.replace_input_with(index, result)
        result.name = f"{name}_chosen"
        self.names[result] = str(name)
        result.dtype, result.shape = ir.DataType.FLOAT, value.shape
        if value.is_graph_output():
            value.name, result.name = f"hexport_before_{name}", name
            self.graph.outputs[list(self.graph.outputs).index(value)] = result

    def _fake(self, value: ir.Value, encoding: Encoding) -> list[ir.Node]:
        """Rounding in float arithmetic, the same for all types: clip(round(x/s), low, high)·s."""
        low, high = encoding.type.low - encoding.zero_point, encoding.type.high - encoding.zero_point
        scale = self.constant(encoding.scale.astype(np.float32).reshape(()))
        nodes = [ir.node("Div", [value, scale])]
        nodes.append(ir.node("Round", [nodes[-1].outputs[0]]))
        bounds = [self.constant(np.array(bound, np.float32)) for bound in (low, high)]
        nodes.append(ir.node("Clip", [nodes[-1].outputs[0], *bounds]))
        nodes.append(ir.node("Mul", [nodes[-1].outputs[0], scale]))
        return self._named(nodes)

    def _named(self, nodes: list[ir.Node]) -> list[ir.Node]:
        for made in nodes:
            self._count += 1
            made.outputs[0].name = f"hexport_fake_{self._count}"
        return nodes
