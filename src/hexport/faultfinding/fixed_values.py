"""Values that are the same whatever is fed: the shape of a fixed tensor, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.backend.running import run_on_cpu
from hexport.faultfinding.cutting import Cuttable, is_constant, used_values
from hexport.faultfinding.saving import save_for_worker
from hexport.faultfinding.tensor_types import TensorType
from hexport.model.chance import BY_CHANCE
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, WorkerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[np.generic]]


def fixed_values(model: ir.Model, types: Mapping[str, TensorType], *, limits: Limits | None = None) -> Arrays:
    """Every such value by name. None at all if the CPU cannot compute them: then they are fed like others."""
    shapes = _shapes(model, types)
    cuttable = Cuttable(model, types, shapes)
    chosen = _follow(model, cuttable.nodes, shapes)
    if not chosen:
        return shapes
    piece = cuttable.piece(chosen)
    assert piece is not None  # it has no inputs, so none without a type
    piece.graph.outputs[:] = [
        value
        for node in piece.graph
        for value in node.outputs
        if not is_constant(node) and value.name in types
    ]
    with temporary_folder() as folder:
        path = folder / "fixed.onnx"
        save_for_worker(piece, path)
        try:
            (values,) = run_on_cpu(path, [{}], optimize=False, limits=limits).outputs
        except WorkerError:
            return shapes
    return {**shapes, **values}


def _shapes(model: ir.Model, types: Mapping[str, TensorType]) -> Arrays:
    import numpy as np

    found: Arrays = {}
    for node in model.graph:
        source = node.inputs[0] if node.inputs else None
        if node.op_type not in ("Shape", "Size") or node.domain not in ("", "ai.onnx") or source is None:
            continue
        shape = _shape_of(source, types)
        if shape is None:
            continue
        name = str(node.outputs[0].name)
        if node.op_type == "Size":
            found[name] = np.array(prod(shape), np.int64)
        else:
            start, end = (node.attributes.get_int(key, None) for key in ("start", "end"))
            found[name] = np.array(shape[start:end], np.int64)
    return found


def _shape_of(value: ir.Value, types: Mapping[str, TensorType]) -> tuple[int, ...] | None:
    if value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    found = types.get(value.name or "")
    return None if found is None else found.fixed


def _follow(model: ir.Model, nodes: tuple[ir.Node, ...], shapes: Arrays) -> list[int]:
    """The nodes that take nothing but constants, shapes and each other's results."""
    fixed: set[ir.Value] = {value for node in model.graph if is_constant(node) for value in node.outputs}
    chosen: list[int] = []
    for index, node in enumerate(nodes):
        if any(value.name in shapes for value in node.outputs):
            fixed.update(node.outputs)
        elif node.op_type not in BY_CHANCE and all(
            value in fixed or value.is_initializer() for value in used_values(node, model.graph)
        ):
            fixed.update(node.outputs)
            chosen.append(index)
    return chosen
