"""Reduce a model that fails to the smallest piece that still does, whatever failing means to the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from hexport.errors import HexportError
from hexport.faultfinding.cutting import Cuttable
from hexport.faultfinding.fixed_values import fixed_values
from hexport.faultfinding.search import Items, smallest_failing
from hexport.faultfinding.tensor_types import infer_types
from hexport.toolchain import Limits


class DoesNotFail(HexportError, ValueError):
    """There is nothing to reduce: the model as a whole does not fail."""

    code = "HX901"


@dataclass(frozen=True)
class Kept:
    """A node of the user's that is in the piece."""

    name: str
    op: str


@dataclass(frozen=True)
class Reduction:
    """The smallest failing piece that was found."""

    model: ir.Model
    nodes: tuple[Kept, ...]
    of: int
    """Nodes of the whole model; Constants are not counted."""
    tried: int
    """Pieces that were asked about."""
    minimal: bool
    """No single node can be left out; False when the time was up before that was known."""
    seconds: float


@dataclass(frozen=True)
class Step:
    """How far it is, for whoever shows it."""

    tried: int
    nodes: int
    of: int


def reduce_model(
    model: ir.Model,
    fails: Callable[[ir.Model], bool],
    *,
    seconds: float | None = None,
    confirmed: bool = False,
    progress: Callable[[Step], None] = lambda _: None,
    limits: Limits | None = None,
) -> Reduction:
    """The smallest piece of ``model`` for which ``fails`` is true; ``model`` itself is not changed.

    ``fails`` gets models of its own to do with as it likes; what it raises comes out here. ``seconds`` is for
    the search, and ends it between two pieces. ``confirmed``: it is known that the whole fails.
    ``limits`` are for finding the tensors' types on the CPU.
    """
    started = time.monotonic()
    if not confirmed and not fails(model.clone()):
        raise DoesNotFail(
            "the model does not fail", next="nothing is left to do, or another failure is meant"
        )
    whole = model.clone()
    whole.graph.sort()
    types = infer_types(whole, limits=limits)
    cuttable = Cuttable(whole, types, fixed_values(whole, types, limits=limits))
    of = len(cuttable.nodes)
    smallest, pieces = of, 0

    def piece_fails(chosen: Items) -> bool:
        nonlocal smallest, pieces
        progress(Step(pieces, smallest, of))
        piece = cuttable.piece(chosen)
        if piece is None:
            return False
        pieces += 1
        if not fails(piece):
            return False
        smallest = len(chosen)
        return True

    def out_of_time() -> bool:
        return seconds is not None and time.monotonic() - started > seconds

    found = smallest_failing(range(of), piece_fails, out_of_time=out_of_time)
    nodes = tuple(Kept(str(cuttable.nodes[i].name), cuttable.nodes[i].op_type) for i in found.items)
    # Where nothing smaller fails it is the model as it came, and not a copy that was never tried.
    piece = cuttable.piece(found.items) if len(found.items) < of else model.clone()
    assert piece is not None  # it was tried
    return Reduction(piece, nodes, of, pieces, found.minimal, time.monotonic() - started)
