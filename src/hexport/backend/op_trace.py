"""The provider's op trace (``qnn_op_trace.json``): its answer to every node, with its reasons."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Unsupported:
    """A node the provider left to the CPU, and what it said about it."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True)
class QnnOp:
    """One operator of the compiled graph and the ONNX nodes it came from."""

    name: str
    op: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class OpTrace:
    """What the provider wrote of one compilation."""

    unsupported: tuple[Unsupported, ...]
    graphs: tuple[tuple[QnnOp, ...], ...]
    tensor_of: dict[str, tuple[str, ...]]
    """Node → the tensors it makes, by which a node that ONNX Runtime renamed is found again."""

    @property
    def on_npu(self) -> frozenset[str]:
        return frozenset(source for graph in self.graphs for op in graph for source in op.sources)


def read_op_trace(path: Path) -> OpTrace:
    """Parse the file."""
    document = json.loads(path.read_text("utf-8"))
    graphs: list[tuple[QnnOp, ...]] = []
    tensor_of: dict[str, tuple[str, ...]] = {}
    for graph in document["subgraph_traces"]:
        graphs.append(
            tuple(QnnOp(op["dst_name"], op["dst_qnn_op_type"], _sources(op)) for op in graph["op_mappings"])
        )
        for tensor in graph["tensor_mappings"]:
            for source in _sources(tensor):
                tensor_of[source] = (*tensor_of.get(source, ()), tensor["dst_name"])
    unsupported = tuple(
        Unsupported(node["node_name"], node["op_type"], node["reason"].strip())
        for node in document["unsupported_nodes"]
        # Asked about a Loop's body, the provider meets its own compiled partitions and "refuses" them.
        if not node["op_type"].startswith("QNNExecutionProvider_")
    )
    return OpTrace(unsupported, tuple(graphs), tensor_of)


def _sources(mapping: dict[str, Any]) -> tuple[str, ...]:
    return tuple(source["name"] for source in mapping["sources"] if source["type"] == "OP")
