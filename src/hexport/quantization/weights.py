"""Weights and biases as integers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import onnx_ir as ir

from hexport.quantization.encoding import Encoding, Floats, Integers, QType, symmetric
from hexport.quantization.plan import Precision
from hexport.quantization.roles import Weight, weight_of
from hexport.rewrite.values import constant

_LEAST_SHARE = 2.0**-12
"""A channel's scale beside the largest one's: the HTP computes garbage below it."""
_BIAS_ROOM = 2.0**30
"""A bias must stay well below 2³¹ of its own steps: the HTP overflows without a word."""


@dataclass(frozen=True)
class Layer:
    """A node with weights."""

    name: str
    node: ir.Node
    place: Weight
    weight: Floats
    bias: Floats | None

    @property
    def channels(self) -> int:
        return self.weight.shape[self.place.axis] if self.place.axis is not None else 1


@dataclass(frozen=True)
class LayerIntegers:
    """A layer's weights as they will be stored, and its bias before it is rounded."""

    integers: Integers
    encoding: Encoding
    bias: Floats | None

    @property
    def weight(self) -> Floats:
        return self.encoding.reals(self.integers)


def layers_of(model: ir.Model) -> dict[str, Layer]:
    """Every node with constant weights, by name."""
    found = {}
    for node in model.graph:
        place = weight_of(node)
        if place is None:
            continue
        weight = constant(node.inputs[place.index])
        bias = constant(node.inputs[2]) if len(node.inputs) > 2 else None
        if weight is None or weight.dtype != np.float32:
            continue
        flat = None if bias is None else bias.astype(np.float32).reshape(-1)
        found[str(node.name)] = Layer(str(node.name), node, place, weight.astype(np.float32), flat)
    return found


def weight_encoding(layer: Layer, precision: Precision, input_scale: float) -> Encoding:
    """Symmetric, a scale for each channel, none too small for the HTP or for the bias."""
    assert precision.weight is not None
    if precision.block:
        return _in_blocks(layer, precision.weight, precision.block)
    # 16-bit weights with a scale a channel are less exact on the HTP than with one scale.
    axis = None if precision.weight is QType.S16 else layer.place.axis
    if axis is None:
        return symmetric(
            _floored(np.abs(layer.weight).max(initial=0), layer, precision.weight, input_scale),
            precision.weight,
        )
    others = tuple(i for i in range(layer.weight.ndim) if i != axis)
    largest = np.abs(layer.weight).max(axis=others, initial=0)
    return symmetric(_floored(largest, layer, precision.weight, input_scale), precision.weight, axis)


def _floored(largest: Any, layer: Layer, type_: QType, input_scale: float) -> Floats:
    floor = np.max(largest) * _LEAST_SHARE
    floored = np.maximum(largest, floor)
    if layer.bias is not None and layer.bias.size:
        bias = np.abs(layer.bias)
        needed = bias * type_.high / (input_scale * _BIAS_ROOM)
        floored = np.maximum(floored, needed if needed.shape == np.shape(largest) else needed.max())
    return np.asarray(floored)


def _in_blocks(layer: Layer, type_: QType, block: int) -> Encoding:
    """One scale for each run of ``block`` weights that are summed into one result."""
    axis = layer.place.rows
    length = layer.weight.shape[axis]
    count = ceil(length / block)
    padded = np.pad(
        np.abs(layer.weight),
        [(0, count * block - length if i == axis else 0) for i in range(layer.weight.ndim)],
    )
    split = padded.reshape(*padded.shape[:axis], count, block, *padded.shape[axis + 1 :])
    largest = split.max(axis=axis + 1)
    floored = np.maximum(largest, largest.max() * _LEAST_SHARE)
    encoding = symmetric(floored, type_)
    return Encoding(type_, encoding.scale, 0, axis, block)


def nearest(layer: Layer, encoding: Encoding) -> LayerIntegers:
    """Rounded to the nearest: where every better rounding begins."""
    return LayerIntegers(encoding.integers(layer.weight), encoding, layer.bias)


def bias_integers(bias: Floats, encoding: Encoding, input_scale: float) -> tuple[Integers, Encoding]:
    """The bias at exactly the scale of the sum it is added to; the HTP takes no other."""
    scale = (np.float32(input_scale) * encoding.scale).astype(np.float32)
    axis = 0 if encoding.axis is not None else None
    result = Encoding(QType.S32, scale, 0, axis)
    return result.integers(bias), result
