"""Constants of a quantised model as floats, for the CPU, instead of a DequantizeLinear for each reader.

onnxruntime's CPU dequantises all of them at every run, before anything else, and makes one for each reader
again of one that is shared. The steps of an unrolled recurrence then hold the same matrix hundreds of times
over: 2 GB for a model of 25 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.axes import along
from hexport.rewrite.values import constant

_Constant = tuple[ir.Value, bytes, bytes, int]
"""The integers, their scale and zero point, and the axis that these go along."""


@contextmanager
def weights_as_floats(model: ir.Model) -> Iterator[None]:
    """Change the model, with the same results; after the block it is as it was."""
    alike = list(_alike(model).values())
    removed = {node for same in alike for node in same}
    order = list(model.graph)
    readers = [(user, index, node.outputs[0]) for node in removed for user, index in node.outputs[0].uses()]
    floats = [_dequantised(same[0]) for same in alike]
    for same, one in zip(alike, floats, strict=True):
        model.graph.register_initializer(one)
        for node in same:
            node.outputs[0].replace_all_uses_with(one)
    model.graph.remove(removed)
    try:
        yield
    finally:
        for place, node in enumerate(order):
            if node in removed and place:
                model.graph.insert_after(order[place - 1], node)
            elif node in removed:
                model.graph.insert_before(model.graph[0], node)
        for user, index, value in readers:
            user.replace_input_with(index, value)
        for one in floats:
            del model.graph.initializers[str(one.name)]


def _alike(model: ir.Model) -> dict[_Constant, list[ir.Node]]:
    """Each dequantised constant, and the nodes that dequantise it."""
    found: dict[_Constant, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type != "DequantizeLinear" or node.outputs[0].is_graph_output():
            continue
        arrays = [constant(value) for value in node.inputs]
        # In blocks, or without a zero point, it is left to onnxruntime.
        if len(arrays) != 3 or any(array is None for array in arrays) or "block_size" in node.attributes:
            continue
        (_, scale, zero), integers = arrays, node.inputs[0]
        assert integers is not None
        assert scale is not None
        assert zero is not None
        key = (integers, scale.tobytes(), zero.tobytes(), node.attributes.get_int("axis", 1))
        found.setdefault(key, []).append(node)
    return found


def _dequantised(node: ir.Node) -> ir.Value:
    """What DequantizeLinear gives, made when it is written to a file, and not kept."""
    integers, output = node.inputs[0], node.outputs[0]
    assert integers is not None
    assert integers.shape is not None
    name = f"{output.name}_dequantised"
    tensor = ir.LazyTensor(
        lambda: ir.Tensor(_reals(node)), dtype=ir.DataType.FLOAT, shape=integers.shape, name=name
    )
    return ir.Value(
        name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=integers.shape, const_value=tensor
    )


def _reals(node: ir.Node) -> NDArray[np.float32]:
    """In the operator's own arithmetic: a difference of integers times a float32."""
    integers, scale, zero = (constant(value) for value in node.inputs)
    assert integers is not None
    assert scale is not None
    assert zero is not None
    if scale.ndim == 1:
        shape = along(node.attributes.get_int("axis", 1), integers.ndim)
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    difference = integers.astype(np.int32) - zero.astype(np.int32)
    return difference.astype(np.float32) * scale.astype(np.float32)
