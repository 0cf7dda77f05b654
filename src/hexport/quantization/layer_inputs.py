"""What flows into each layer with weights: the mean and the second moments of the vectors it multiplies.

A convolution multiplies patches of its input. Means are over all of them; for second moments a bounded
number, spread evenly, stands for all.
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

from hexport.quantization.damping import Halves
from hexport.quantization.encoding import Floats
from hexport.quantization.observing import Sample, chunks, exposed_session
from hexport.quantization.patch_sums import Window, sum_of_patches, window_of
from hexport.quantization.weights import Layer

_MOST_VECTORS = 2048
"""Of a layer and sample: enough for second moments of a few hundred inputs."""
MOST_SAMPLES = 64
"""The moments of a layer's inputs do not change any more after that many."""
_LONGEST = 4608
"""Inputs to one sum; the moments of more would take too much memory."""


@dataclass
class Moments:
    """Of the vectors that one group of a layer multiplies: [group, length] and [group, length, length]."""

    count: int
    total: NDArray[np.float64]
    halves: Halves | None
    damping: float | None = None
    """How far to trust them, once it was tried."""

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.total / max(self.count, 1)

    @property
    def squares(self) -> NDArray[np.float64] | None:
        """The second moments of all samples."""
        return None if self.halves is None else np.add(*self.halves, dtype=np.float64)

    def joined(self, other: Moments) -> Moments:
        """Of both."""
        halves = None
        if self.halves is not None and other.halves is not None:
            halves = (self.halves[0] + other.halves[0], self.halves[1] + other.halves[1])
        return Moments(self.count + other.count, self.total + other.total, halves)

    def add(self, vectors: Floats) -> None:
        """``vectors`` are those of one sample, [group, count, length]."""
        self.count += vectors.shape[1]
        self.total += vectors.sum(axis=1, dtype=np.float64)
        if self.halves is not None:
            turn, other = self.halves
            turn += np.matmul(vectors.transpose(0, 2, 1), vectors)
            self.halves = (other, turn)


def no_squares(groups: int, length: int) -> Halves:
    """Before anything was seen."""
    shape = (groups, length, length)
    return np.zeros(shape, np.float32), np.zeros(shape, np.float32)


class Listener:
    """Takes the moments of what flows into layers from whoever has the arrays."""

    def __init__(self, layers: Mapping[str, Layer], *, squares: bool) -> None:
        self._squares = squares
        self.found: dict[str, Moments] = {}
        self._readers: dict[str, list[Layer]] = {}
        for layer in layers.values():
            value = layer.node.inputs[0]
            if value is not None and layer.node.op_type != "ConvTranspose":
                self._readers.setdefault(str(value.name), []).append(layer)

    def hears(self, name: str) -> bool:
        return name in self._readers

    def take(self, name: str, array: Floats) -> None:
        for layer in self._readers.get(name, ()):
            _add(self.found, layer, array, self._squares)


def moments_of(
    model: ir.Model, layers: Mapping[str, Layer], samples: Iterable[Sample], folder: Path, *, squares: bool
) -> dict[str, Moments]:
    """For every layer whose vectors can be told: convolutions and products with a matrix."""
    listener = Listener(layers, squares=squares)
    inputs = {str(value.name) for value in model.graph.inputs}
    for number, chunk in enumerate([*chunks(model), sorted(inputs)]):
        names = [name for name in chunk if listener.hears(name)]
        if not names:
            continue
        session = (
            None if set(names) <= inputs else exposed_session(model, names, folder / f"moments{number}.onnx")
        )
        for sample in islice(samples, MOST_SAMPLES):
            for name, array in zip(names, _values(session, names, sample), strict=True):
                listener.take(name, array)
    return listener.found


def _values(session: Any, names: Sequence[str], sample: Sample) -> Iterator[Floats]:
    """One after the other, each let go of before the next: they are most of what is in memory."""
    arrays = [sample[name] for name in names] if session is None else session.run(names, dict(sample))
    arrays.reverse()
    while arrays:
        yield arrays.pop()


def _add(found: dict[str, Moments], layer: Layer, array: Floats, squares: bool) -> None:
    if layer.node.op_type == "Conv" and not squares:
        _add_sums(found, layer, array)
        return
    vectors = patches(layer, array)
    if vectors is None:
        return
    if layer.name not in found:
        groups, _, length = vectors.shape
        halves = no_squares(groups, length) if squares and length <= _LONGEST else None
        found[layer.name] = Moments(0, np.zeros((groups, length)), halves)
    found[layer.name].add(vectors)


def _add_sums(found: dict[str, Moments], conv: Layer, array: Floats) -> None:
    window = window_of(conv.node, conv.weight.shape[2:])
    if window is None:
        return
    count, total = sum_of_patches(window, array)
    seen = Moments(count, total.reshape(conv.node.attributes.get_int("group", 1), -1), None)
    found[conv.name] = found[conv.name].joined(seen) if conv.name in found else seen


def patches(layer: Layer, array: Floats, most: int = _MOST_VECTORS) -> Floats | None:
    """``most`` of the vectors that the layer multiplies, as [group, count, length]; None if unknown."""
    if layer.node.op_type == "Conv":
        window = window_of(layer.node, layer.weight.shape[2:])
        return None if window is None else _conv_patches(layer, window, array, most)
    if layer.node.op_type == "Gemm":
        turned = layer.node.attributes.get_int("transA", 0)
        array = array.T if turned else array
    rows = array.reshape(-1, array.shape[-1])
    return rows[:: max(1, -(-len(rows) // most))][None]


def _conv_patches(layer: Layer, window: Window, array: Floats, most: int) -> Floats:
    rank = len(window.kernel)
    padded = np.pad(array, [(0, 0), (0, 0), *window.pads]) if np.any(window.pads) else array
    windows = np.lib.stride_tricks.sliding_window_view(padded, window.spans, axis=tuple(range(2, 2 + rank)))
    steps = (
        slice(None),
        slice(None),
        *(slice(None, None, s) for s in window.strides),
        *(slice(None, None, d) for d in window.dilations),
    )
    windows = windows[steps]
    # [batch, channel, *place, *kernel] -> [place, channel, *kernel], thinned before it is copied.
    places = np.moveaxis(windows, 1, 1 + rank)
    count = int(np.prod(places.shape[: 1 + rank]))
    chosen = np.unravel_index(np.arange(0, count, max(1, -(-count // most))), places.shape[: 1 + rank])
    vectors = np.ascontiguousarray(places[chosen])
    group = layer.node.attributes.get_int("group", 1)
    grouped = vectors.reshape(len(vectors), group, -1)
    return np.ascontiguousarray(grouped.transpose(1, 0, 2), dtype=np.float32)
