"""What of a program the NPU got, and why the rest stayed: records only, the worker fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CpuNode:
    """An operator that ExecuTorch's own kernels run, on the CPU."""

    node: str
    """Its name in the lowered graph."""
    op: str
    """``aten.index.Tensor``."""
    module: str = ""
    """Where in the user's module it comes from: ``encoder.layers.0``."""
    source: str = ""
    """The user's line: ``model.py:12 forward: x = x[mask]``."""
    reason: str = ""
    """In the backend's own words."""
    advice: str = ""
    macs: int = 0


@dataclass(frozen=True)
class Delegate:
    """A run of operators that became one graph of the NPU."""

    name: str
    nodes: int
    ops: Mapping[str, int] = field(default_factory=dict)
    """Operator → how many of it."""
    macs: int = 0
    bytes: int = 0
    """Of its context binary; methods that share one each count it."""


@dataclass(frozen=True)
class Partition:
    """Who runs what of one method."""

    delegates: tuple[Delegate, ...]
    cpu: tuple[CpuNode, ...]
    glue: Mapping[str, int] = field(default_factory=dict)
    """What is on the CPU only because a neighbour is: quantising at a border, copies. Operator → how many."""

    @property
    def delegated_nodes(self) -> int:
        return sum(delegate.nodes for delegate in self.delegates)

    @property
    def nodes(self) -> int:
        return self.delegated_nodes + len(self.cpu)

    @property
    def node_share(self) -> float:
        """Of the operators, 0 to 1."""
        return self.delegated_nodes / self.nodes if self.nodes else 0.0

    @property
    def mac_share(self) -> float:
        """Of the multiplications, 0 to 1; that of the operators where nothing is multiplied."""
        delegated = sum(delegate.macs for delegate in self.delegates)
        total = delegated + sum(node.macs for node in self.cpu)
        return delegated / total if total else self.node_share
