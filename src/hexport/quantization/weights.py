"""Weights and biases as integers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.facts.integer_ops import integer_rules
from hexport.quantization.encoding import Encoding, Floats, Integers, QType, symmetric
from hexport.quantization.plan import Precision
from hexport.quantization.roles import Weight, weight_of
from hexport.rewrite.values import constant

_LEAST_SHARE = 2.0**-12
"""A channel's scale beside the largest one's: the HTP computes garbage below it."""


@dataclass(frozen=True)
class Layer:
    """A node with weights."""

    name: str
    node: ir.Node
    place: Weight
    weight: Floats
    bias: Floats | None

    @property
    def shared(self) -> str:
        """The weight itself and how it is read: the steps of an unrolled recurrence have both in common.

        A matrix that one node reads turned and another does not has its channels on two axes.
        """
        value = self.node.inputs[self.place.index]
        assert value is not None
        group = self.node.attributes.get_int("group", 1)
        return f"{value.name} {self.place.axis} {self.place.rows} {group}"


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
        flat = None if bias is None or not _by_channel(bias) else bias.astype(np.float32).reshape(-1)
        found[str(node.name)] = Layer(str(node.name), node, place, weight, flat)
    return found


def _by_channel(bias: NDArray[Any]) -> bool:
    """Whether it is one number a channel, or one for all; a Gemm's may differ from row to row."""
    return bias.size == 1 or bias.shape[-1] == bias.size


def weight_encoding(
    layer: Layer, precision: Precision, input_scale: float, output_scale: float = 0.0
) -> Encoding:
    """Symmetric, a scale for each channel, none too small for the HTP or for the bias."""
    assert precision.weight is not None
    if precision.block:
        return _in_blocks(layer, precision.weight, precision.block)
    # 16-bit weights with a scale a channel are less exact on the HTP than with one scale.
    axis = None if precision.weight is QType.S16 else layer.place.axis
    others = tuple(i for i in range(layer.weight.ndim) if i != axis)
    largest = np.abs(layer.weight).max(axis=others, initial=0)
    floored = _floored(largest, layer, precision.weight, input_scale)
    if precision.activation is QType.U16:
        least = _limit("least-multiplier") * output_scale / input_scale
        floored = np.maximum(floored, least * precision.weight.high)
    return symmetric(floored, precision.weight, axis)


def _floored(largest: Any, layer: Layer, type_: QType, input_scale: float) -> Floats:
    floor = np.max(largest, initial=0) * _LEAST_SHARE
    floored = np.maximum(largest, floor)
    if layer.bias is not None and layer.bias.size:
        # A bias must stay well below 2³¹ of its own steps: the HTP overflows without a word.
        room = input_scale * _limit("bias-room")
        needed = np.abs(layer.bias.astype(np.float64)) * type_.high / room
        floored = np.maximum(floored, needed if needed.shape == np.shape(largest) else needed.max())
    return np.asarray(floored)


def _limit(rule: str) -> float:
    value = integer_rules()[rule].value
    assert value is not None, rule
    return value


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
    floored = np.maximum(largest, largest.max(initial=0) * _LEAST_SHARE)
    encoding = symmetric(floored, type_)
    return Encoding(type_, encoding.scale, 0, axis, block)


def nearest(layer: Layer, encoding: Encoding) -> LayerIntegers:
    """Rounded to the nearest: where every better rounding begins."""
    return LayerIntegers(encoding.integers(layer.weight), encoding, layer.bias)


def bias_encoding(weight: Encoding, input_scale: float) -> Encoding:
    """At exactly the scale of the sum that the bias is added to; the HTP takes no other."""
    scale = (np.float32(input_scale) * weight.scale).astype(np.float32)
    return Encoding(QType.S32, scale, 0, 0 if weight.axis is not None else None)


def bias_integers(bias: Floats, weight: Encoding, input_scale: float) -> tuple[Integers, Encoding]:
    """The bias as the layer's sum takes it."""
    encoding = bias_encoding(weight, input_scale)
    return encoding.integers(bias), encoding
