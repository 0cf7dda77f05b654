"""Models of about thirty nodes with one node in them that the compiler or the simulator gets wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import small_models as small

SIZE = 16
CHANNELS = 4


def around(
    op: str, inputs: list[str], constants: list[onnx.TensorProto], **attributes: Any
) -> onnx.ModelProto:
    """Eight sound nodes, the one called ``culprit``, and two dozen behind it.

    Behind the culprit is shape arithmetic, which is the same whatever is fed: a cut there has to keep it.
    """
    nodes, last = _sound("before", "x", 8)
    nodes.append(helper.make_node(op, [last, *inputs], ["bad"], name="culprit", **attributes))
    nodes += [
        helper.make_node("Shape", ["bad"], ["size"], name="size"),
        helper.make_node("Concat", ["minus", "size"], ["longer"], name="longer", axis=0),
        helper.make_node("Slice", ["longer", "one", "five"], ["wanted"], name="wanted"),
        helper.make_node("Reshape", ["bad", "wanted"], ["again"], name="again"),
    ]
    behind, last = _sound("after", "again", 18)
    nodes += [*behind, helper.make_node("Identity", [last], ["y"], name="end")]
    numbers = {"minus": [-1], "one": [1], "five": [5], "gain": np.float32(1.1), "offset": np.float32(0.1)}
    return small.model(
        nodes,
        [small.value("x", [1, CHANNELS, SIZE, SIZE])],
        [small.value("y", None)],
        [*constants, *(small.constant(name, np.array(value)) for name, value in numbers.items())],
        opset=22,
    )


def _sound(prefix: str, source: str, count: int) -> tuple[list[onnx.NodeProto], str]:
    """A chain of operators that the NPU computes well, and behind which an error is still to be seen."""
    nodes = []
    for i in range(count):
        op, others = (("LeakyRelu", []), ("Neg", []), ("Mul", ["gain"]), ("Sub", ["offset"]))[i % 4]
        attributes = {"alpha": 0.9} if op == "LeakyRelu" else {}
        made = f"{prefix}{i}"
        nodes.append(helper.make_node(op, [source, *others], [made], name=f"{prefix}_{op}_{i}", **attributes))
        source = made
    return nodes, source


def refused_in_compiling() -> onnx.ModelProto:
    """MaxPool whose last window would start past the data: the session cannot be made."""
    return around("MaxPool", [], [], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)


def killed_in_running() -> onnx.ModelProto:
    """LpPool with SAME_UPPER compiles, and the simulator dies of it."""
    return around("LpPool", [], [], kernel_shape=[2, 2], auto_pad="SAME_UPPER", p=2)


def wrong_results() -> onnx.ModelProto:
    """Resize to the nearest, rounded up: the NPU takes other pixels."""
    scales = small.constant("scales", np.array([1, 1, 2, 2], np.float32))
    return around(
        "Resize",
        ["", "scales"],
        [scales],
        mode="nearest",
        coordinate_transformation_mode="half_pixel",
        nearest_mode="ceil",
    )


def sound() -> onnx.ModelProto:
    return around("MaxPool", [], [], kernel_shape=[2, 2], strides=[2, 2])
