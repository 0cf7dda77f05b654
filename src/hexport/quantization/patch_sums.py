"""How a convolution moves over its input, and the sum of all the patches that it multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.quantization.encoding import Floats


@dataclass(frozen=True)
class Window:
    """The kernel and its steps, each with one number an axis."""

    kernel: tuple[int, ...]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[int, int]]

    @property
    def spans(self) -> list[int]:
        """What the kernel covers, gaps included."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def places(self, sizes: Sequence[int]) -> list[int]:
        """How often it fits along each axis of an input of these sizes."""
        return [
            (size + sum(pads) - span) // stride + 1
            for size, pads, span, stride in zip(sizes, self.pads, self.spans, self.strides, strict=True)
        ]


def window_of(conv: ir.Node, kernel: tuple[int, ...]) -> Window | None:
    """None: forms whose pads are left to whoever runs it, or that cut the input."""
    attributes, rank = conv.attributes, len(kernel)
    if attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    pads = attributes.get_ints("pads", [0] * (2 * rank))
    if min(pads) < 0:
        return None
    return Window(
        kernel,
        attributes.get_ints("strides", [1] * rank),
        attributes.get_ints("dilations", [1] * rank),
        list(zip(pads[:rank], pads[rank:], strict=True)),
    )


def sum_of_patches(window: Window, array: Floats) -> tuple[int, NDArray[np.float64]]:
    """How many patches there are in ``array``, and their sum: [channel, *kernel].

    Axis by axis: where an element of the kernel goes along one does not depend on the others. Nothing is
    padded or copied, because zeros add nothing.
    """
    sizes = array.shape[2:]
    places, summed = window.places(sizes), array
    for axis in reversed(range(len(sizes))):
        along = np.moveaxis(summed, 2 + axis, 0)
        parts = [along[met].sum(axis=0) for met in _met(window, axis, sizes[axis], places[axis])]
        summed = np.stack(parts, axis=2 + axis)
    return array.shape[0] * prod(places), summed.sum(axis=0, dtype=np.float64)


def _met(window: Window, axis: int, size: int, places: int) -> list[slice]:
    """The inputs that each element of the kernel meets along an axis, those in the padding left out."""
    stride, found = window.strides[axis], []
    for element in range(window.kernel[axis]):
        first = element * window.dilations[axis] - window.pads[axis][0]
        last = first + (places - 1) * stride
        # The first one that is not before the input, in whole steps.
        start = first if first >= 0 else first % stride
        found.append(slice(start, max(min(last + 1, size), 0), stride))
    return found
