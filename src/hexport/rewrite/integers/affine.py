"""Recognising a node that does no more than v·factor + offset, with a number for each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.rewrite.values import constant, fixed_shape, is_float

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """``value`` · ``factor`` + ``offset``; both have one number, or one for each channel."""

    value: ir.Value
    factor: Numbers
    offset: Numbers

    def after(self, earlier: Affine) -> Affine:
        """The two in one: this one's value is what ``earlier`` gives."""
        return Affine(earlier.value, earlier.factor * self.factor, earlier.offset * self.factor + self.offset)


def affine_of(node: ir.Node, axis: int) -> Affine | None:
    """What the node does to the channels on ``axis`` (negative: from the end), if that is all it does."""
    if node.domain != "" or not node.inputs:
        return None
    if node.op_type == "BatchNormalization":
        found = _batch_norm(node)
    elif node.op_type == "Conv":
        found = _lone_weights(node)
    elif node.op_type in ("Mul", "Div", "Add", "Sub"):
        return _arithmetic(node, axis)
    else:
        return None
    rank = len(fixed_shape(node.outputs[0]) or ())
    return found if rank and axis % rank == 1 else None


def _arithmetic(node: ir.Node, axis: int) -> Affine | None:
    for position in (0, 1):
        value, other = node.inputs[position], constant(node.inputs[1 - position])
        if value is None or other is None or constant(value) is not None:
            continue
        numbers = _by_channel(other, value, node.outputs[0], axis)
        if numbers is None or not is_float(value):
            return None
        one, nothing = np.ones(()), np.zeros(())
        match node.op_type, position:
            case "Mul", _:
                return Affine(value, numbers, nothing)
            case "Div", 0 if np.all(numbers != 0):
                return Affine(value, 1 / numbers, nothing)
            case "Add", _:
                return Affine(value, one, numbers)
            case "Sub", 0:
                return Affine(value, one, -numbers)
            case "Sub", 1:
                return Affine(value, -one, numbers)
    return None


def _by_channel(other: NDArray[Any], value: ir.Value, result: ir.Value, axis: int) -> Numbers | None:
    """The constant as one number or one for each channel; None when it differs in another way."""
    shape = fixed_shape(value)
    if shape is None or shape != fixed_shape(result) or not np.all(np.isfinite(other)):
        return None
    if other.size == 1:
        return other.astype(np.float64).reshape(())
    padded = (1,) * (len(shape) - other.ndim) + other.shape
    place = axis % len(shape)
    if any(length != 1 for i, length in enumerate(padded) if i != place):
        return None
    return other.astype(np.float64).reshape(-1)


def _batch_norm(node: ir.Node) -> Affine | None:
    value, known = node.inputs[0], [constant(given) for given in node.inputs[1:5]]
    if value is None or any(array is None for array in known):
        return None
    training = node.attributes.get_int("training_mode", 0)
    if training:
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in known)
    factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    return Affine(value, factor, bias - mean * factor)


def _lone_weights(node: ir.Node) -> Affine | None:
    """A convolution that multiplies every channel by its one weight."""
    value, weight = node.inputs[0], constant(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    offset = constant(bias)
    if value is None or weight is None or (bias is not None and offset is None):
        return None
    lone = weight.size == len(weight) == node.attributes.get_int("group", 1)
    if not lone or fixed_shape(value) is None or fixed_shape(value) != fixed_shape(node.outputs[0]):
        return None
    if any(node.attributes.get_ints("pads", [])) or any(
        s != 1 for s in node.attributes.get_ints("strides", [])
    ):
        return None
    flat = np.zeros(()) if offset is None else offset.astype(np.float64)
    return Affine(value, weight.astype(np.float64).reshape(-1), flat)
