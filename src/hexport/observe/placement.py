"""From the backend's names back to the user's nodes, and which processor has each of them.

ONNX Runtime renames nodes while it works: ``conv0`` becomes ``conv0_token_1`` when the layout
changes, ``fc`` becomes ``fc/MatMulAddFusion``, a branch of a constant If is inlined as
``_if_then_branch_token_8_Gather``, and some fusions make a node with a name of its own, known only by
the tensor it writes. What cannot be led back to a node of the user's is said to be made by
ONNX Runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hexport.backend.calling import PROVIDER
from hexport.backend.op_trace import OpTrace
from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.model.graph import Graph, Node

_SUFFIX = re.compile(r"(_token_\d+|/\w*Fusion/?)$")
_INLINED = re.compile(r"^\w*?_token_\d+_")


@dataclass(frozen=True)
class Placement:
    """Where the user's nodes went."""

    npu: tuple[tuple[str, ...], ...]
    """One tuple of the user's node names a partition."""
    cpu: tuple[str, ...]
    made_npu: tuple[AssignedNode, ...]
    """Nodes that ONNX Runtime made, on the NPU: mostly layout changes."""
    made_cpu: tuple[AssignedNode, ...]
    folded: tuple[str, ...]
    """The user's nodes that are in neither list: folded into constants or fused into others."""

    @property
    def on_npu(self) -> frozenset[str]:
        return frozenset(name for part in self.npu for name in part)


class Names:
    """Leads a backend's node name back to the user's."""

    def __init__(self, graph: Graph, tensor_of: Mapping[str, tuple[str, ...]]) -> None:
        self.nodes = {node.name: node for node in graph.walk()}
        self._makers = {output: node.name for node in graph.walk() for output in node.outputs if output}
        self._tensor_of = tensor_of

    def original(self, name: str) -> str | None:
        """The user's name for ``name``, or None when ONNX Runtime made the node."""
        for candidate in _older_names(name):
            if candidate in self.nodes:
                return candidate
        for tensor in self._tensor_of.get(name, ()):
            for candidate in _older_names(tensor):
                if candidate in self._makers:
                    return self._makers[candidate]
        return None


def _older_names(name: str) -> Iterator[str]:
    """``name``, and what it may have been called before each of ONNX Runtime's changes."""
    yield name
    while (shorter := _SUFFIX.sub("", name)) != name:
        yield shorter
        name = shorter
    while (inner := _INLINED.sub("", name)) != name:
        yield inner
        name = inner


def place(graph: Graph, parts: Iterable[AssignedPart], trace: OpTrace) -> Placement:
    """Sort the user's nodes by processor."""
    names = Names(graph, trace.tensor_of)
    npu: list[tuple[str, ...]] = []
    cpu: dict[str, None] = {}
    made: dict[bool, list[AssignedNode]] = {True: [], False: []}
    for part in parts:
        on_npu = part.provider == PROVIDER
        found: dict[str, None] = {}
        for node in part.nodes:
            original = names.original(node.name)
            if original is None:
                made[on_npu].append(node)
            else:
                found[original] = None
        if on_npu:
            npu.append(tuple(found))
        else:
            cpu |= found
    # A node that was split over both processors counts as what it costs: a CPU node.
    npu = [tuple(name for name in part if name not in cpu) for part in npu]
    placed = {name for part in npu for name in part} | set(cpu)
    folded = tuple(n.name for n in graph.walk() if n.op != "Constant" and n.name not in placed)
    return Placement(tuple(npu), tuple(cpu), tuple(made[True]), tuple(made[False]), folded)


def cutting_nodes(graph: Graph, placement: Placement) -> frozenset[str]:
    """The CPU nodes that stand between NPU nodes: they cut the graph into partitions."""
    after = _reached(graph.nodes, placement.on_npu)
    before = _reached(_reversed(graph.nodes), placement.on_npu)
    return frozenset(name for name in placement.cpu if name in after and name in before)


def _reached(nodes: Iterable[Node], sources: frozenset[str]) -> set[str]:
    """Names of nodes with one of ``sources`` before them; ``nodes`` in topological order."""
    tensors: set[str] = set()
    reached: set[str] = set()
    for node in nodes:
        if any(name in tensors for name in node.inputs):
            reached.add(node.name)
        if node.name in reached or node.name in sources:
            tensors |= {name for name in node.outputs if name}
    return reached


def _reversed(nodes: Iterable[Node]) -> list[Node]:
    return [
        Node(node.name, node.op, node.domain, node.outputs, node.inputs) for node in reversed(tuple(nodes))
    ]
