"""Buckets: the fixed sets of sizes that a model is compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from hexport.building.signature import Sums, sums, with_sums
from hexport.errors import UsageError
from hexport.model import Graph
from hexport.model.dims import DimsConflict, Shape, fix_shapes

MOST = 64
"""Buckets of one package: each is compiled."""
_PROPOSED = 4
"""Buckets that are proposed for one dim."""
_LONGEST = 40
"""Letters of a dim's name in a bucket's; all buckets have the same dims, so their sizes tell them apart."""
_PLAIN = re.compile(r"[^A-Za-z0-9]+")
_STEP = 8
"""Proposed sizes above it are multiples of it: the NPU works on rows of so many."""


@dataclass(frozen=True)
class Sizes:
    """One bucket: what it is called, its dims, and the inputs' shapes."""

    name: str
    dims: dict[str, int]
    shapes: dict[str, Shape]

    @property
    def volume(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())


def expand(
    graph: Graph,
    buckets: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    command: str,
) -> tuple[Sizes, ...]:
    """Every combination, the smallest first. ``graph`` has a name for every dynamic dim.

    A dim that is the sum of others, and was given no size, has that of the sum in each bucket.
    """
    known, follow = _dynamic(graph), free_sums(graph, buckets, dims)
    for name, sizes in buckets.items():
        _check(name, sizes, known, dims)
    count = prod(len(set(sizes)) for sizes in buckets.values())
    if count > MOST:
        raise UsageError(
            f"--bucket asks for {count} combinations",
            why=f"each is compiled, and {MOST} are the most that one package holds",
            next="give fewer sizes",
        )
    found = []
    ordered = [[(name, size) for size in sorted(set(sizes))] for name, sizes in buckets.items()]
    shaped = _without(input_shapes, graph, varying(buckets, follow))
    for chosen in product(*ordered):
        shapes = fix_shapes(graph, with_sums({**dims, **dict(chosen)}, follow), shaped, command)
        found.append(Sizes(_name(chosen), _dims_at(graph, shapes), shapes))
    return tuple(sorted(found, key=lambda sizes: sizes.volume))


def free_sums(graph: Graph, buckets: Mapping[str, object], dims: Mapping[str, int]) -> Sums:
    """The sums among the dims that were given no size of their own."""
    return {name: terms for name, terms in sums(graph).items() if name not in buckets and name not in dims}


def varying(buckets: Iterable[str], follow: Sums) -> tuple[str, ...]:
    """The dims that differ from bucket to bucket: those with buckets, and the sums of such."""
    named = tuple(buckets)
    return (*named, *(name for name, terms in follow.items() if set(terms) & set(named)))


def propose(graph: Graph, seen: Iterable[Mapping[str, Shape]]) -> dict[str, list[int]]:
    """Sizes for each dim, from those of samples: a quarter of the samples in each, rounded up."""
    met: dict[str, list[int]] = {}
    follow = sums(graph)
    for shapes in seen:
        for dim, size in _dims_at(graph, shapes).items():
            if dim not in follow:
                met.setdefault(dim, []).append(size)
    return {dim: _quarters(sorted(sizes)) for dim, sizes in met.items()}


def _quarters(ordered: Sequence[int]) -> list[int]:
    if ordered[0] == ordered[-1]:
        return [ordered[0]]
    ends = (ordered[ceil(len(ordered) * (i + 1) / _PROPOSED) - 1] for i in range(_PROPOSED))
    return sorted({end if end < _STEP else ceil(end / _STEP) * _STEP for end in ends})


def _dynamic(graph: Graph) -> set[str]:
    return {d for t in graph.inputs.values() for d in t.shape or () if isinstance(d, str)}


def _check(name: str, sizes: Sequence[int], known: set[str], dims: Mapping[str, int]) -> None:
    if name not in known:
        raise DimsConflict(
            f"--bucket {name}: the model has no such dynamic dim",
            why=f"its dynamic dims are: {', '.join(sorted(known)) or 'none'}",
            next="a dim without a name is called INPUT.AXIS",
        )
    if name in dims:
        raise DimsConflict(
            f"--bucket {name} and --dim {name}={dims[name]} contradict each other", next="give one of them"
        )
    if not sizes or min(sizes) < 1:
        raise UsageError(f"--bucket {name}: sizes are 1 or more, for example {name}=16,64,256")


def _without(input_shapes: Mapping[str, Shape], graph: Graph, buckets: Sequence[str]) -> dict[str, Shape]:
    """Whole shapes would contradict the buckets of their own axes."""
    for name in input_shapes:
        tensor = graph.inputs.get(name)
        if tensor is not None and set(tensor.shape or ()) & set(buckets):
            raise DimsConflict(
                f"--input-shape {name} fixes a dim that --bucket varies",
                next="give the other dims with --dim; a dim without a name is called INPUT.AXIS",
            )
    return dict(input_shapes)


def _dims_at(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, int]:
    return {
        dim: size
        for name, shape in shapes.items()
        if name in graph.inputs
        for dim, size in zip(graph.inputs[name].shape or (), shape, strict=False)
        if isinstance(dim, str)
    }


def _name(chosen: Sequence[tuple[str, int]]) -> str:
    """For files and graphs: letters, digits and dashes only."""
    words = [f"{_PLAIN.sub('-', name)[:_LONGEST]}-{size}" for name, size in chosen]
    return "_".join(words) or "model"
