"""One float model in which every node's rounding can be turned on by itself: how much does each one harm?

y ──┬─► Q ──► DQ ──┐                      the same for weights, and for what enters from a float node
    └──────────────┴─► Where(switch) ──► readers

Building a session for each node would take minutes; here each node costs one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.reference import cpu_session
from hexport.quantization.activations import Activations, encode_constant
from hexport.quantization.encoding import Encoding, QType
from hexport.quantization.initializers import add_initializer
from hexport.quantization.observing import Sample
from hexport.quantization.plan import Plan
from hexport.quantization.roles import Role, role_of
from hexport.quantization.weights import LayerIntegers
from hexport.rewrite.values import constant

_SWITCH = "hexport_switches"
_FIRST_GROUPS = 24
_LITTLE = 0.004
"""The share of all harm below which a group of nodes is not looked into: what it does is spread over them."""


@dataclass(frozen=True)
class Harm:
    """What rounding at one node alone does to the outputs: noise over signal, for each output."""

    node: str
    noise: NDArray[Any]


def harms(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    samples: Sequence[Sample],
    folder: Path,
) -> list[Harm]:
    """The harm of every node that computes in integers."""
    nodes = [str(node.name) for node in model.graph if plan.of(node).activation is not None]
    path = folder / "switches.onnx"
    ir.save(_switchboard(model, plan, activations, weights, nodes), path)
    board = _Switched(cpu_session(path), len(nodes), samples)
    found: dict[int, NDArray[Any]] = {}
    size = max(1, len(nodes) // _FIRST_GROUPS)
    groups = [range(begin, min(begin + size, len(nodes))) for begin in range(0, len(nodes), size)]
    together = {group: board.noise(group) for group in groups}
    least = sum(together.values(), np.zeros(len(model.graph.outputs))) * _LITTLE
    while groups:
        group = groups.pop()
        noise = together[group]
        if len(group) == 1 or bool(np.all(noise <= least)):
            for index in group:
                found[index] = noise / len(group)
            continue
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            together[half] = board.noise(half)
            groups.append(half)
    path.unlink()
    return [Harm(name, found[index]) for index, name in enumerate(nodes)]


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
        if not np.issubdtype(a.dtype, np.floating):
            shares.append(float(np.mean(a != b)))
            continue
        signal = float(np.sum(np.square(a, dtype=np.float64)))
        error = float(np.sum(np.square(b.astype(np.float64) - a)))
        shares.append(error / signal if signal else (0.0 if error == 0 else 1.0))
    return np.array(shares)


def _switchboard(
    model: ir.Model,
    plan: Plan,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    nodes: Sequence[str],
) -> ir.Model:
    copy = model.clone()
    graph = copy.graph
    switches = ir.Input(_SWITCH, ir.Shape([len(nodes)]), ir.TensorType(ir.DataType.BOOL))
    graph.inputs.append(switches)
    board = _Board(graph, switches)
    made_in_integers = {str(v.name) for n in graph if plan.of(n).activation is not None for v in n.outputs}
    numbers = {name: index for index, name in enumerate(nodes)}
    for node in list(graph):
        type_ = plan.of(node).activation
        if type_ is None or str(node.name) not in numbers:
            continue
        switch = board.switch(node, numbers[str(node.name)])
        roles = [role_of(node, index) for index in range(len(node.inputs))]
        for index, role in enumerate(roles):
            value = node.inputs[index]
            if value is None or role in (Role.PARAMETER, Role.BIAS):
                continue
            rounded = _rounded(board, node, value, role, type_, activations, weights, made_in_integers)
            if rounded is not None:
                node.replace_input_with(index, board.choose(node, switch, rounded, value))
        for value in node.outputs:
            if value.dtype == ir.DataType.FLOAT and activations.knows(str(value.name)):
                board.choose_after(node, switch, value, activations.encoding(str(value.name), type_))
    return copy


def _rounded(
    board: _Board,
    node: ir.Node,
    value: ir.Value,
    role: Role,
    type_: QType,
    activations: Activations,
    weights: Mapping[str, LayerIntegers],
    made_in_integers: set[str],
) -> ir.Value | None:
    """What the node would read in integers; None when the one that makes it has rounded it already."""
    if role is Role.WEIGHT:
        return board.constant(weights[str(node.name)].weight)
    wanted = (
        QType.S8 if role is Role.RIGHT and type_ is QType.U16 else QType.U8 if role is Role.GAIN else type_
    )
    if (array := constant(value)) is not None:
        encoding = encode_constant(array, wanted)
        return board.constant(encoding.reals(encoding.integers(array)))
    name = str(value.name).removesuffix(_Board.CHOSEN)
    if not activations.knows(name) or (name in made_in_integers and wanted is type_):
        return None
    return board.rounding(node, value, activations.encoding(name, wanted))


class _Board:
    """The graph with its switches."""

    CHOSEN = "_chosen"

    def __init__(self, graph: ir.Graph, switches: ir.Value) -> None:
        self.graph, self.switches = graph, switches
        self._count = 0

    def constant(self, array: NDArray[Any]) -> ir.Value:
        self._count += 1
        return add_initializer(
            self.graph, f"hexport_switched_{self._count}", ir.tensor(np.ascontiguousarray(array))
        )

    def switch(self, node: ir.Node, number: int) -> ir.Value:
        gather = ir.node("Gather", [self.switches, self.constant(np.array(number, np.int64))])
        gather.outputs[0].name = f"hexport_switch_{number}"
        self.graph.insert_before(node, gather)
        return gather.outputs[0]

    def rounding(self, node: ir.Node, value: ir.Value, encoding: Encoding) -> ir.Value:
        made = self._fake(value, encoding)
        self.graph.insert_before(node, made)
        return made[-1].outputs[0]

    def choose(self, node: ir.Node, switch: ir.Value, on: ir.Value, off: ir.Value) -> ir.Value:
        where = ir.node("Where", [switch, on, off])
        self._count += 1
        where.outputs[0].name = f"hexport_choice_{self._count}"
        self.graph.insert_before(node, where)
        return where.outputs[0]

    def choose_after(self, node: ir.Node, switch: ir.Value, value: ir.Value, encoding: Encoding) -> None:
        made = self._fake(value, encoding)
        where = ir.node("Where", [switch, made[-1].outputs[0], value])
        result, name = where.outputs[0], value.name
        users = [(user, index) for user, index in value.uses() if user not in (*made, where)]
        self.graph.insert_after(node, [*made, where])
        for user, index in users:
            user.replace_input_with(index, result)
        result.name = f"{name}{self.CHOSEN}"
        result.dtype, result.shape = ir.DataType.FLOAT, value.shape
        if value.is_graph_output():
            value.name, result.name = f"{name}_float", name
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
        for made in nodes:
            self._count += 1
            made.outputs[0].name = f"hexport_fake_{self._count}"
        return nodes
