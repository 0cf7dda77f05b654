"""Quantised graphs written node by node, for what hexport itself never emits."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from operator_cases import Array, Case

_TYPES: dict[str, Any] = {"u8": np.uint8, "u16": np.uint16, "s8": np.int8, "s16": np.int16, "s32": np.int32}
Encoding = tuple[Array, Array]
"""Scale and zero point."""


def encoded(values: Array, type_: str) -> Encoding:
    """Unsigned types from end to end, signed ones without a zero point."""
    info = np.iinfo(_TYPES[type_])
    if info.min < 0:
        return np.array(np.abs(values).max() / info.max, np.float32), np.zeros((), info.dtype)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = np.array((high - low) / info.max, np.float32)
    return scale, np.asarray(round(-low / float(scale)), info.dtype)


class QdqGraph:
    """Grows node by node; each step gives the name of what it made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}

    def node(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def given(self, array: Array) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def rounded(self, value: str, encoding: Encoding, output: str = "") -> str:
        scale, zero = self.constant(encoding[0]), self.constant(encoding[1])
        integers = self.node("QuantizeLinear", value, scale, zero)
        return self.node("DequantizeLinear", integers, scale, zero, output=output)

    def data(self, array: Array, type_: str) -> str:
        """An input of the graph in integers."""
        return self.rounded(self.given(array), encoded(array, type_))

    def stored(self, array: Array, type_: str, axis: int | None = None, scale: Array | None = None) -> str:
        """A constant in integers, with one scale or one for each slice along ``axis``."""
        info = np.iinfo(_TYPES[type_])
        if axis is None and scale is None:
            scale, zero = encoded(array, type_)
        else:
            scale = (
                channel_scales(array, axis or 0, type_) if scale is None else np.asarray(scale, np.float32)
            )
            zero = np.zeros(scale.shape, info.dtype)
        shape = [-1 if i == axis else 1 for i in range(array.ndim)] if scale.ndim else []
        whole = np.rint(array.astype(np.float64) / scale.reshape(shape)) + zero.reshape(shape).astype(
            np.int64
        )
        integers = np.clip(whole, info.min, info.max).astype(info.dtype)
        names = [self.constant(x) for x in (integers, scale, zero)]
        along: dict[str, Any] = {"axis": axis} if scale.ndim else {}
        return self.node("DequantizeLinear", *names, **along)

    def ended(self, value: str, encoding: Encoding) -> Case:
        self.rounded(value, encoding, output="y")
        return self.whole()

    def whole(self) -> Case:
        return Case(self.name, self.name, tuple(self.nodes), self.inputs, self.constants)


def channel_scales(array: Array, axis: int, type_: str = "s8") -> Array:
    """Symmetric, by the largest of each slice."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    scales: Array = (np.abs(array).max(axis=others) / np.iinfo(_TYPES[type_]).max).astype(np.float32)
    return scales
