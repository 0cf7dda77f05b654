"""Reading an EPContext model: the small ONNX file that calls graphs of a context binary.

What is in it besides those calls runs on the CPU. So this file is a witness of its own for where each node
went, and the one that is shipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.backend.requests import AssignedNode
from hexport.model.file import load, nodes
from hexport.model.labels import COMPILED_OP


@dataclass(frozen=True)
class GraphCall:
    """An EPContext node: one graph of a context binary, run as a node."""

    name: str
    graph: str
    """Its name in the binary."""
    main: bool
    """Whether this node holds or names the binary; the others of a model use the same one."""
    embedded: bool
    cache: bytes
    """The binary itself, or the name of its file, relative to the model's."""
    build_id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class ContextModel:
    """An EPContext model as it is on disk."""

    path: Path
    calls: tuple[GraphCall, ...]
    cpu_nodes: tuple[AssignedNode, ...]

    @property
    def graphs(self) -> tuple[str, ...]:
        return tuple(call.graph for call in self.calls)

    @property
    def main_call(self) -> GraphCall | None:
        return next((call for call in self.calls if call.main), None)


def read_context_model(path: Path) -> ContextModel:
    """Read the file; no context binary is looked at."""
    found = list(nodes(load(path).graph))
    return ContextModel(
        path,
        tuple(_call(node) for node in found if node.op_type == COMPILED_OP.encode()),
        tuple(_plain_node(node) for node in found if node.op_type != COMPILED_OP.encode()),
    )


def _call(node: Any) -> GraphCall:
    attributes = {bytes(a.name): a for a in node.attribute}

    def number(name: bytes, default: int) -> int:
        return int(attributes[name].i) if name in attributes else default

    def data(name: bytes) -> bytes:
        return bytes(attributes[name].s) if name in attributes else b""

    return GraphCall(
        name=_text(node.name),
        graph=_text(data(b"partition_name")) or _text(node.name),
        main=number(b"main_context", 1) == 1,
        embedded=number(b"embed_mode", 1) == 1,
        cache=data(b"ep_cache_context"),
        build_id=_text(data(b"ep_sdk_version")),
        inputs=tuple(map(_text, node.input)),
        outputs=tuple(map(_text, node.output)),
    )


def _plain_node(node: Any) -> AssignedNode:
    return AssignedNode(_text(node.name), _text(node.op_type), _text(node.domain))


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "replace")
