"""How a window walks along one axis: where it starts, what it covers, how much padding it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.rewrite.values import fixed_shape


@dataclass(frozen=True)
class Walk:
    """A pooling window on one axis of ``size`` elements."""

    size: int
    kernel: int
    stride: int
    begin: int
    """Padding asked for before the data."""
    end: int
    """Padding asked for after the data."""
    steps: int
    """How many windows there are, which is the size of the output."""

    @property
    def overhang(self) -> int:
        """How far the last window reaches past the data."""
        return max(0, (self.steps - 1) * self.stride + self.kernel - self.begin - self.size)

    def counts(self, *, with_padding: bool) -> NDArray[np.float64]:
        """How many elements each window covers: of the data, or of the data and the padding asked for."""
        first = np.arange(self.steps) * self.stride - self.begin
        low, high = (-self.begin, self.size + self.end) if with_padding else (0, self.size)
        covered = np.minimum(first + self.kernel, high) - np.maximum(first, low)
        counts: NDArray[np.float64] = np.maximum(covered, 0).astype(np.float64)
        return counts


def walks(node: ir.Node) -> list[Walk] | str:
    """The walk of a pooling node on each axis, or why it cannot be told."""
    shape, out = fixed_shape(node.inputs[0]), fixed_shape(node.outputs[0])
    if shape is None or out is None:
        return "the shapes are not fixed"
    kernel = node.attributes.get_ints("kernel_shape", [])
    rank = len(kernel)
    if not rank or len(shape) != rank + 2:
        return "the node has no kernel_shape for its rank"
    if any(dilation != 1 for dilation in node.attributes.get_ints("dilations", [])):
        return "the window is dilated"
    stride = node.attributes.get_ints("strides", [1] * rank)
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    pads = node.attributes.get_ints("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
    found = []
    for axis in range(rank):
        size, steps = shape[axis + 2], out[axis + 2]
        begin, end = pads[axis], pads[axis + rank]
        if mode.startswith("SAME"):
            begin, end = same_padding(mode, max(0, (steps - 1) * stride[axis] + kernel[axis] - size))
        if (steps - 1) * stride[axis] >= size + begin:
            return "the last window starts in the padding, where ONNX and its runtimes count differently"
        found.append(Walk(size, kernel[axis], stride[axis], begin, end, steps))
    return found


def same_padding(mode: str, total: int) -> tuple[int, int]:
    """How ``SAME_UPPER`` and ``SAME_LOWER`` share an amount of padding."""
    less, more = total // 2, total - total // 2
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def padding(along: Sequence[Walk]) -> list[int]:
    """ONNX's ``pads``: all that the windows reach."""
    return [*(walk.begin for walk in along), *(walk.overhang for walk in along)]


def window_sums(op: Any, x: Any, like: ir.Value, along: Sequence[Walk], weight: float) -> Any:
    """The sum over each window times ``weight``, as a depthwise Conv.

    A Pad before a pool would be the plain form, but the compiler fuses the two into the faulty one.
    """
    shape = fixed_shape(like)
    assert shape is not None
    assert like.dtype is not None
    weights = np.full((shape[1], 1, *(walk.kernel for walk in along)), weight, like.dtype.numpy())
    return op.Conv(
        x,
        op.Constant(value=ir.tensor(weights)),
        group=shape[1],
        pads=padding(along),
        strides=[walk.stride for walk in along],
    )
