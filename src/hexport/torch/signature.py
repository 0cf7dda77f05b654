"""The tensors that a captured graph takes: their names, their examples, and what their dims are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
from hexport.torch.dynamic_shapes import names_of_axes

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from hexport.torch.description import TorchModel

Formula = Any
"""torch's own, of symbols: sympy has no types."""


@dataclass(frozen=True)
class InputTensor:
    """One tensor among the example inputs."""

    name: str
    leaf: int
    """Which leaf of the example inputs it is."""
    dims: tuple[int | Formula, ...]


@dataclass(frozen=True)
class Signature:
    """What a graph takes."""

    inputs: tuple[InputTensor, ...]
    symbols: Mapping[str, str]
    """torch's symbol of a dim -> its name."""
    ranges: Mapping[str, tuple[int, int | None]]
    """Symbol -> its smallest and largest size."""
    sizes: Mapping[str, int]
    """Symbol -> its size in the example."""
    notes: tuple[str, ...]

    def renamed(self, dim: str) -> str:
        """A formula with the names of the dims in it."""
        return re.sub(r"\b[A-Za-z_]\w*", lambda found: self.symbols.get(found[0], found[0]), dim)


def read_signature(model: TorchModel, program: ExportedProgram) -> Signature:
    """Names for inputs and dims, and what may be worth a word about them."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((tuple(model.args), dict(model.kwargs)))
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    given: Sequence[Mapping[int, str]] = model.axis_names if model.is_program else names_of_axes(model)
    tensors = [
        (index, arg, nodes[arg.name])
        for index, arg in enumerate(specs)
        if index < len(leaves) and isinstance(leaves[index], torch.Tensor)
    ]
    names = _input_names(model, [arg.name for _, arg, _ in tensors])
    symbols: dict[str, str] = {}
    sizes: dict[str, int] = {}
    notes = [
        f"{arg.name} is fixed in the graph: {leaves[index]!r}"
        for index, arg in enumerate(specs)
        if index < len(leaves) and not isinstance(leaves[index], (torch.Tensor, type(None)))
    ]
    inputs = []
    for name, (index, _, node) in zip(names, tensors, strict=True):
        shape = node.meta["val"].shape
        inputs.append(InputTensor(name, index, tuple(_dim(size) for size in shape)))
        for axis, symbol in _symbols(inputs[-1]):
            sizes.setdefault(symbol, int(leaves[index].shape[axis]))
            wanted = given[index].get(axis) if index < len(given) else None
            _name(symbols, symbol, wanted, notes)
    _name_the_rest(symbols, inputs)
    return Signature(tuple(inputs), symbols, _ranges(program), sizes, tuple(notes))


def _input_names(model: TorchModel, own: list[str]) -> list[str]:
    if not model.input_names:
        return own
    if len(model.input_names) != len(own) or len(set(model.input_names)) < len(own):
        raise UsageError(
            f"{model}: input_names has {', '.join(model.input_names)}",
            why=f"the model takes {len(own)} tensors: {', '.join(own)}",
            next="give each a name of its own, in this order",
        )
    return list(model.input_names)


def _name(symbols: dict[str, str], symbol: str, wanted: str | None, notes: list[str]) -> None:
    """The first name counts; that another axis must always be as large is worth a word."""
    if not wanted:
        return
    before = symbols.setdefault(symbol, wanted)
    if before != wanted:
        notes.append(f"the dims {before} and {wanted} are always equal; both are called {before}")


def _name_the_rest(symbols: dict[str, str], inputs: Sequence[InputTensor]) -> None:
    """After the input and axis where they are first met."""
    for one in inputs:
        for axis, symbol in _symbols(one):
            symbols.setdefault(symbol, f"{one.name}_dim{axis}")


def _dim(size: Any) -> int | Formula:
    import torch

    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _symbols(one: InputTensor) -> Iterator[tuple[int, str]]:
    """The axes that are a symbol and no more."""
    for axis, dim in enumerate(one.dims):
        if not isinstance(dim, int) and str(dim).isidentifier():
            yield axis, str(dim)


def _ranges(program: Any) -> dict[str, tuple[int, int | None]]:
    found = {}
    for symbol, allowed in program.range_constraints.items():
        upper = allowed.upper
        # torch's infinity is a symbol, and no number.
        largest = int(upper) if getattr(upper, "is_Integer", isinstance(upper, int)) else None
        lower = allowed.lower
        smallest = int(lower) if getattr(lower, "is_Integer", isinstance(lower, int)) else 0
        found[str(symbol)] = (smallest, largest)
    return found
