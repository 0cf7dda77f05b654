"""What flows into each layer with weights: the mean and the second moments of the vectors it multiplies.

A convolution multiplies patches of its input; a bounded number of them, spread evenly, stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.quantization.encoding import Floats
from hexport.quantization.observing import Sample, chunks, exposed_session
from hexport.quantization.weights import Layer

_MOST_FOR_SQUARES, _MOST_FOR_MEANS = 2048, 128
"""Vectors of a layer and sample: enough for second moments of a few hundred inputs, and for their means."""
_MOST_SAMPLES = 64
"""The moments of a layer's inputs do not change any more after that many."""
_LONGEST = 4608
"""Inputs to one sum; the moments of more would take too much memory."""


@dataclass
class Moments:
    """Of the vectors that one group of a layer multiplies: [group, length] and [group, length, length]."""

    count: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64] | None

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.total / max(self.count, 1)

    def joined(self, other: Moments) -> Moments:
        """Of both."""
        both = self.squares is not None and other.squares is not None
        squares = self.squares + other.squares if both else None  # type: ignore[operator]
        return Moments(self.count + other.count, self.total + other.total, squares)

    def add(self, vectors: Floats) -> None:
        """``vectors`` is [group, count, length]."""
        self.count += vectors.shape[1]
        self.total += vectors.sum(axis=1, dtype=np.float64)
        if self.squares is not None:
            self.squares += np.matmul(vectors.transpose(0, 2, 1), vectors)


def moments_of(
    model: ir.Model, layers: Mapping[str, Layer], samples: Iterable[Sample], folder: Path, *, squares: bool
) -> dict[str, Moments]:
    """For every layer whose vectors can be told: convolutions and products with a matrix."""
    readers: dict[str, list[Layer]] = {}
    for layer in layers.values():
        value = layer.node.inputs[0]
        if value is not None and layer.node.op_type != "ConvTranspose":
            readers.setdefault(str(value.name), []).append(layer)
    found: dict[str, Moments] = {}
    inputs = {str(value.name) for value in model.graph.inputs}
    for number, chunk in enumerate([*chunks(model), sorted(inputs)]):
        names = [name for name in chunk if name in readers]
        if not names:
            continue
        session = (
            None if set(names) <= inputs else exposed_session(model, names, folder / f"moments{number}.onnx")
        )
        for sample in islice(samples, _MOST_SAMPLES):
            for name, array in zip(names, _values(session, names, sample), strict=True):
                for layer in readers[name]:
                    _add(found, layer, array, squares)
    return found


def _values(session: Any, names: Sequence[str], sample: Sample) -> Iterator[Floats]:
    """One after the other, each let go of before the next: they are most of what is in memory."""
    arrays = [sample[name] for name in names] if session is None else session.run(names, dict(sample))
    arrays.reverse()
    while arrays:
        yield arrays.pop()


def _add(found: dict[str, Moments], layer: Layer, array: Floats, squares: bool) -> None:
    vectors = patches(layer, array, _MOST_FOR_SQUARES if squares else _MOST_FOR_MEANS)
    if vectors is None:
        return
    if layer.name not in found:
        groups, _, length = vectors.shape
        room = np.zeros((groups, length, length)) if squares and length <= _LONGEST else None
        found[layer.name] = Moments(0, np.zeros((groups, length)), room)
    found[layer.name].add(vectors)


def patches(layer: Layer, array: Floats, most: int = _MOST_FOR_SQUARES) -> Floats | None:
    """``most`` of the vectors that the layer multiplies, as [group, count, length]; None if unknown."""
    if layer.node.op_type == "Conv":
        return _conv_patches(layer, array, most)
    if layer.node.op_type == "Gemm":
        turned = layer.node.attributes.get_int("transA", 0)
        array = array.T if turned else array
    rows = array.reshape(-1, array.shape[-1])
    return rows[:: max(1, -(-len(rows) // most))][None]


def _conv_patches(layer: Layer, array: Floats, most: int) -> Floats | None:
    attributes, kernel = layer.node.attributes, layer.weight.shape[2:]
    rank = len(kernel)
    if attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    strides = attributes.get_ints("strides", [1] * rank)
    dilations = attributes.get_ints("dilations", [1] * rank)
    pads = attributes.get_ints("pads", [0] * (2 * rank))
    if min(pads) < 0:
        return None
    around = [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))]
    padded = np.pad(array, around) if any(pads) else array
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
    steps = (
        slice(None),
        slice(None),
        *(slice(None, None, s) for s in strides),
        *(slice(None, None, d) for d in dilations),
    )
    windows = windows[steps]
    # [batch, channel, *place, *kernel] -> [place, channel, *kernel], thinned before it is copied.
    places = np.moveaxis(windows, 1, 1 + rank)
    count = int(np.prod(places.shape[: 1 + rank]))
    chosen = np.unravel_index(np.arange(0, count, max(1, -(-count // most))), places.shape[: 1 + rank])
    vectors = np.ascontiguousarray(places[chosen])
    group = attributes.get_int("group", 1)
    grouped = vectors.reshape(len(vectors), group, -1)
    return np.ascontiguousarray(grouped.transpose(1, 0, 2), dtype=np.float32)
