"""Small float models written as lines, one a node."""

from __future__ import annotations

from ast import literal_eval

import numpy as np
import onnx
from onnx import TensorProto, helper

import small_models as small

F = np.float32


def graph(
    shape: list[int],
    *steps: str,
    outputs: str = "y",
    opset: int = 17,
    mask: list[int] | None = None,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A model of x from lines such as ``y = Conv x w pads=[1,1]``; ``mask`` is a second input, of int64."""
    nodes = []
    for step in steps:
        name, _, call = step.partition(" = ")
        op, *words = call.split()
        given = {key: literal_eval(text) for key, _, text in (w.partition("=") for w in words if "=" in w)}
        nodes.append(helper.make_node(op, [w for w in words if "=" not in w], [name], name=name, **given))
    inputs = [small.value("x", list(shape))]
    if mask is not None:
        inputs.append(small.value("mask", list(mask), TensorProto.INT64))
    stored = [small.constant(name, array) for name, array in constants.items()]
    shown = [small.value(name, None) for name in outputs.split()]
    proto = small.model(nodes, inputs, shown, stored, opset)
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True)
