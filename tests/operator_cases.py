"""One-operator float models in the shapes that real networks have, many of which fit into one graph.

A session of the simulator takes a second whatever it holds, so the cases of a batch stand side by side in
one model, each with inputs and outputs of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
IMAGE, SERIES, TABLE = (1, 16, 12, 12), (1, 24, 32), (4, 64)


@dataclass(frozen=True)
class Case:
    """One node, ``op``, or a few; ``y`` comes out."""

    name: str
    op: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 21


def numbers(shape: Iterable[int], seed: str = "", low: float | None = None, high: float = 1.0) -> Array:
    """Normal, or uniform when bounds are given; the same ones for the same shape and seed."""
    shape = tuple(shape)
    rng = np.random.default_rng(crc32(f"{shape}{seed}".encode()))
    made = rng.normal(size=shape) if low is None else rng.uniform(low, high, size=shape)
    return made.astype(np.float32)


def case(
    op: str,
    inputs: Iterable[Array | tuple[int, ...]],
    constants: Iterable[Array] = (),
    form: str = "",
    *,
    opset: int = 21,
    order: str = "",
    **attributes: Any,
) -> Case:
    """``op`` over inputs a, b, … and then constants k, l, …; ``order`` when they are read in another one."""
    arrays = [x if isinstance(x, np.ndarray) else numbers(x, f"{op}{i}") for i, x in enumerate(inputs)]
    fed = {chr(ord("a") + i): x for i, x in enumerate(arrays)}
    fixed = {chr(ord("k") + i): x for i, x in enumerate(constants)}
    names = list(order.replace("_", " ")) if order else [*fed, *fixed]
    read = ["" if name == " " else name for name in names]
    node = helper.make_node(op, read, ["y"], **attributes)
    return Case(f"{op}{' ' + form if form else ''}", op, (node,), fed, fixed, opset)


def merged(cases: Iterable[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """All of them in one model, names led by the case's, and what to feed it."""
    nodes: list[onnx.NodeProto] = []
    constants, inputs, outputs = [], [], []
    feeds: dict[str, Array] = {}
    opset = 0
    for one in cases:
        opset = max(opset, one.opset)
        for number, node in enumerate(one.nodes):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{one.name}/{node.op_type}{number}"
            copy.input[:] = [name and f"{one.name}/{name}" for name in node.input]
            copy.output[:] = [name and f"{one.name}/{name}" for name in node.output]
            nodes.append(copy)
        constants += [numpy_helper.from_array(x, f"{one.name}/{name}") for name, x in one.constants.items()]
        feeds |= {f"{one.name}/{name}": x for name, x in one.inputs.items()}
        outputs.append(helper.make_empty_tensor_value_info(f"{one.name}/y"))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    graph = helper.make_graph(nodes, "cases", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True), feeds
