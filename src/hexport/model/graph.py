"""What flows between rooms about a model's graph: typed, frozen, without protobuf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Dim = int | str | None
"""A number, a name, or nothing known."""


@dataclass(frozen=True)
class TensorType:
    """A tensor's element type and shape; ``shape`` is None when even the rank is unknown."""

    dtype: str
    shape: tuple[Dim, ...] | None

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[…]"
        return f"{self.dtype}[{','.join('?' if dim is None else str(dim) for dim in self.shape)}]"


@dataclass(frozen=True)
class Node:
    """One node of the user's graph. ``name`` is unique in the model: see ``reading.py``."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | float | bytes | tuple[int, ...]] = field(default_factory=dict)
    bodies: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A graph or the body of an If, Loop or Scan."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    constants: Mapping[str, TensorType]
    """Initializers and the outputs of Constant nodes."""

    def walk(self) -> Iterator[Node]:
        """Every node, those in bodies after the node that holds them."""
        for node in self.nodes:
            yield node
            for body in node.bodies:
                yield from body.walk()
