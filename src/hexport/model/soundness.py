"""Whether a graph fits together at all: every name made once, no cycles, types and operators that exist.

ONNX Runtime finds most of this, too, but speaks of it without the node, or after minutes, or not at all.
Only what no runtime could run is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from hexport.model.chance import BY_CHANCE
from hexport.model.file import ModelError
from hexport.model.graph import Graph, Node

KNOWN_DOMAINS = frozenset(
    {
        "",
        "ai.onnx",
        "ai.onnx.ml",
        "ai.onnx.preview",
        "ai.onnx.preview.training",
        "ai.onnx.training",
        "com.microsoft",
        "com.microsoft.experimental",
        "com.microsoft.nchwc",
        "com.ms.internal.nhwc",
        "org.pytorch.aten",
        "qti.aisw",
    }
)
"""Domains whose operators ONNX Runtime or the QNN provider brings itself."""


class UnusableGraph(ModelError, ValueError):
    """The file is ONNX, but its graph cannot be run: names, types or operators do not fit together."""

    code = "HX407"


def check_soundness(
    path: Path, graph: Graph, functions: frozenset[tuple[str, str]], *, any_operator: bool = False
) -> None:
    """Raise :class:`UnusableGraph` for the first thing that no runtime could run."""
    _check_types(path, graph)
    _check_names(path, graph, frozenset())
    _check_cycles(path, graph)
    if not any_operator:
        _check_operators(path, graph, functions)
    _check_there_is_work(path, graph)


def random_nodes(graph: Graph) -> list[Node]:
    """Nodes whose result differs from run to run."""
    return [node for node in graph.walk() if node.op in BY_CHANCE and node.domain in ("", "ai.onnx")]


def _check_types(path: Path, graph: Graph) -> None:
    for name, tensor in graph.inputs.items():
        if tensor.dtype.startswith("type") or tensor.dtype == "undefined":
            raise UnusableGraph(
                f"{path}: the type of input {name!r} is not known",
                why=f"the file says {tensor.dtype!r}, which is no element type of ONNX",
                next="export the model again",
            )
        if tensor.dtype in ("sequence", "optional", "map", "sparse tensor"):
            raise UnusableGraph(
                f"{path}: input {name!r} is not a tensor: it is of type {tensor.dtype}",
                why="the NPU takes tensors of fixed shapes only, and so does hexport",
                next="export the model with one input for each tensor",
            )
    for owner in (graph, *_bodies(graph)):
        for name, tensor in owner.constants.items():
            if tensor.dtype.startswith("type"):
                raise UnusableGraph(
                    f"{path}: the type of the constant {name!r} is not known",
                    why=f"the file says {tensor.dtype!r}, which is no element type of ONNX",
                    next="export the model again",
                )


def _check_names(path: Path, graph: Graph, outer: frozenset[str]) -> None:
    makers: dict[str, str] = dict.fromkeys(graph.inputs, "an input")
    for node in graph.nodes:
        for name in filter(None, node.outputs):
            stored = name in graph.constants and node.op != "Constant"
            if name in makers or stored:
                other = makers.get(name, "a stored constant")
                raise UnusableGraph(
                    f"{path}: two make the tensor {name!r}",
                    why=f"{_said(node)} writes it, and so does {other}",
                    next="give each tensor a name of its own; most exporters do",
                )
            makers[name] = _said(node)
    visible = outer | makers.keys() | graph.constants.keys()
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in visible:
                raise _nobody_makes(path, name, _said(node), visible)
        for body in node.bodies:
            _check_names(path, body, visible)
    for name in graph.outputs:
        if name not in visible:
            raise _nobody_makes(path, name, "an output of the model" if not outer else "a body", visible)


def _nobody_makes(path: Path, name: str, reader: str, visible: frozenset[str]) -> UnusableGraph:
    import difflib

    near = difflib.get_close_matches(name, visible, 1)
    return UnusableGraph(
        f"{path}: nothing makes the tensor {name!r}, which {reader} needs",
        why="it is no input, no constant, and no node writes it"
        + (f"; there is a {near[0]!r}" if near else ""),
        next="export the model again, or name the right tensor",
    )


def _check_cycles(path: Path, graph: Graph) -> None:
    for owner in (graph, *_bodies(graph)):
        makers = {name: node.name for node in owner.nodes for name in node.outputs if name}
        needs = {
            node.name: {makers[name] for name in _read_by(node) if name in makers} for node in owner.nodes
        }
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            names: list[str] = error.args[1]
            shown = " → ".join(f"`{name}`" for name in names[:8])
            raise UnusableGraph(
                f"{path}: the graph goes in a circle",
                why=f"each of these nodes waits for the one before: {shown}{' …' if names[8:] else ''}",
                next="a feedback must be a Loop, a Scan, or an input and an output of the model",
            ) from error


def _read_by(node: Node) -> Iterator[str]:
    """Tensors that a node waits for, those its bodies take from outside included."""
    yield from filter(None, node.inputs)
    for body in node.bodies:
        own = {*body.inputs, *body.constants, *(name for inner in body.nodes for name in inner.outputs)}
        yield from (name for inner in body.nodes for name in _read_by(inner) if name not in own)


def _check_operators(path: Path, graph: Graph, functions: frozenset[tuple[str, str]]) -> None:
    foreign: Mapping[str, Node] = {
        f"{node.domain}::{node.op}": node
        for node in graph.walk()
        if node.domain not in KNOWN_DOMAINS and (node.domain, node.op) not in functions
    }
    if foreign:
        first = next(iter(foreign.values()))
        raise UnusableGraph(
            f"{path} uses operators nobody here knows: {', '.join(foreign)}",
            why=f"{_said(first)} is of the domain {first.domain!r}; ONNX Runtime has no such operator and "
            "the model no function that defines it, so not even the CPU can run it",
            next="export the model with standard operators, with the operator as a model-local function, or "
            "cut the model before and after it; compile and debug record take its library with --custom-ops",
        )


def _check_there_is_work(path: Path, graph: Graph) -> None:
    if not graph.outputs:
        raise UnusableGraph(
            f"{path} has no outputs",
            why="what nobody asks for is not computed",
            next="export the model with its outputs",
        )
    if not graph.nodes or (not graph.inputs and not random_nodes(graph)):
        lack = "no nodes" if not graph.nodes else "no inputs"
        raise UnusableGraph(
            f"{path} has nothing to compute",
            why=f"it has {lack}: every output is always the same, or an input as it came",
            next="name the model itself, not a part of it",
        )


def _bodies(graph: Graph) -> Iterator[Graph]:
    for node in graph.walk():
        yield from node.bodies


def _said(node: Node) -> str:
    return f"{node.op} `{node.name}`"
