"""Saving models of any size for workers and commands to read."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from hexport.model.file import MAX_PROTOBUF, TooLarge
from hexport.model.weights_beside import save_with_weights_beside

_STRUCTURE = 2**26
"""Room for everything that is not a weight."""


def save_for_worker(model: ir.Model, path: Path) -> None:
    """With its weights in a file beside it when one file cannot hold them."""
    if _fits(model):
        ir.save(model, path)
    else:
        save_with_weights_beside(model, path)


def save_whole(model: ir.Model, path: Path) -> None:
    """As one file, or not at all."""
    if not _fits(model):
        raise TooLarge("the piece that fails has more than 2 GB of weights", next="raise --budget")
    ir.save(model, path)


def _fits(model: ir.Model) -> bool:
    weights = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in weights if tensor is not None) < MAX_PROTOBUF - _STRUCTURE
