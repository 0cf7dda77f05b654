"""One float model in which every node's rounding can be turned on by itself: how much does each one harm?

y ──► If(switch) ─┬─ then: Q ──► DQ ─┬──► readers      the same for what enters from a float node
                  └─ else: y ────────┘               weights: Where(switch, rounded, weight)

Building a session for each node would take minutes; here each node costs one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.reference import cpu_session
from hexport.quantization.activations import Activations, encode_constant
from hexport.quantization.coarse_sums import Grains, coarse_sum
from hexport.quantization.emitting import reading_type
from hexport.quantization.encoding import Encoding, QType
from hexport.quantization.initializers import add_initializer
from hexport.quantization.observing import Sample
from hexport.quantization.plan import Plan
from hexport.quantization.recurrences import places
from hexport.quantization.roles import Role, role_of, weight_of
from hexport.quantization.weights import LayerIntegers, bias_integers
from hexport.rewrite.values import constant, fixed_shape

_SWITCH = "hexport_switches"
_FIRST_GROUPS = 24
_MOST_RUNS = 200
"""How many groups are tried: a count and no time, so that the same gives the same on any machine."""
_LITTLE = 0.004
"""The share of all harm below which a group of nodes is not looked into: what it does is spread over them."""


@dataclass(frozen=True)
class Harm:
    """What rounding at one node alone does to the outputs: noise over signal, for each output.

    Nodes that share their weights are one: each makes the same error, so that they do not average out. So are
    the steps of a recurrence.
    """

    nodes: tuple[str, ...]
    noise: NDArray[Any]


def harms(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    samples: Sequence[Sample],
    folder: Path,
    arch: int,
) -> list[Harm]:
    """The harm of every node that computes in integers."""
    nodes = _units(model, plan)
    path = folder / "switches.onnx"
    ir.save(_switchboard(model, plan, activations, weights, nodes, arch), path)
    board = _Switched(cpu_session(path), len(nodes), samples)
    found: dict[int, NDArray[Any]] = {}
    size = max(1, len(nodes) // _FIRST_GROUPS)
    groups = [range(begin, min(begin + size, len(nodes))) for begin in range(0, len(nodes), size)]
    together = {group: board.noise(group) for group in groups}
    least = sum(together.values(), np.zeros(len(model.graph.outputs))) * _LITTLE
    runs = len(groups)
    while groups:
        # The group that harms most is looked into first: runs may end before all are.
        group = max(groups, key=lambda g: (bool(np.any(together[g] > least)), float(together[g].max())))
        groups.remove(group)
        noise = together[group]
        if len(group) == 1 or runs >= _MOST_RUNS or bool(np.all(noise <= least)):
            for index in group:
                found[index] = noise / len(group)
            continue
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            together[half] = board.noise(half)
            groups.append(half)
            runs += 1
    path.unlink()
    return [Harm(names, found[index]) for index, names in enumerate(nodes)]


def _units(model: ir.Model, plan: Plan) -> list[tuple[str, ...]]:
    units: dict[str, list[str]] = {}
    steps = places(model)
    for node in model.graph:
        if plan.of(node).activation is None:
            continue
        name, weight = str(node.name), weight_of(node)
        shared = node.inputs[weight.index] if weight is not None else None
        alone = f"step {steps[name]} {plan.of(node)}" if name in steps else f"node {name}"
        units.setdefault(alone if shared is None else f"weight {shared.name}", []).append(name)
    return [tuple(names) for names in units.values()]


class _Switched:
    """The switchboard at work."""

    def __init__(self, session: Any, count: int, samples: Sequence[Sample]) -> None:
        self._session, self._count, self._samples = session, count, samples
        self._truth = [self._run(sample, ()) for sample in samples]

    def noise(self, on: Sequence[int]) -> NDArray[Any]:
        """Over the samples, with these nodes rounding and no other."""
        pairs = zip(self._truth, self._samples, strict=True)
        result: NDArray[Any] = np.mean(
            [_noise(truth, self._run(sample, on)) for truth, sample in pairs], axis=0
        )
        return result

    def _run(self, sample: Sample, on: Sequence[int]) -> Any:
        switches = np.zeros(self._count, bool)
        switches[list(on)] = True
        return self._session.run(None, {**sample, _SWITCH: switches})


def _noise(truth: Sequence[Any], got: Sequence[Any]) -> NDArray[Any]:
    shares = []
    for a, b in zip(truth, got, strict=True):
        if a.shape != b.shape:
            # A loop that ends on data ended elsewhere.
            shares.append(1.0)
            continue
        if not np.issubdtype(a.dtype, np.floating):
            shares.append(float(np.mean(a != b)))
            continue
        # Where the model itself gives no number, nothing can be right or wrong.
        there = np.isfinite(a)
        signal = float(np.sum(np.square(a[there], dtype=np.float64)))
        error = float(np.sum(np.square(b[there].astype(np.float64) - a[there])))
        broken = not np.isfinite(error) or (error > 0 and not signal)
        shares.append(1.0 if broken else error / signal if signal else 0.0)
    return np.array(shares)


def _switchboard(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    units: Sequence[tuple[str, ...]],
    arch: int,
) -> ir.Model:
    copy = model.clone()
    graph = copy.graph
    switches = ir.val(_SWITCH, ir.DataType.BOOL, [len(units)])
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
