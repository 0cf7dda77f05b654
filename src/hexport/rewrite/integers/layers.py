"""A node with constant weights, and the same node with an affine step of its result or input in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.rewrite.integers.affine import Numbers
from hexport.rewrite.pieces import array
from hexport.rewrite.values import constant, fixed_shape

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LayerNormalization")
"""The last has gains for weights: what follows it goes into them; what is before it does not."""


@dataclass(frozen=True)
class Layer:
    """Weights and bias in double precision, until they are written again."""

    node: ir.Node
    weight: Numbers
    bias: Numbers | None

    @property
    def value(self) -> ir.Value:
        value = self.node.inputs[0]
        assert value is not None  # layer_of looked
        return value

    @property
    def axis(self) -> int:
        """Where its input and its result have their channels."""
        return 1 if self.node.op_type in ("Conv", "ConvTranspose") else -1

    @property
    def takes_offset(self) -> bool:
        """Whether there is a bias to add to; a MatMul has none."""
        return self.node.op_type != "MatMul"

    @property
    def groups(self) -> int:
        return int(self.node.attributes.get_int("group", 1))

    @property
    def outputs(self) -> int:
        """The number of output channels."""
        match self.node.op_type:
            case "Conv":
                return len(self.weight)
            case "ConvTranspose":
                return int(self.weight.shape[1]) * self.groups
            case "Gemm" if self.node.attributes.get_int("transB", 0):
                return len(self.weight)
        return int(self.weight.shape[-1])

    def scaled_after(self, factor: Numbers, offset: Numbers) -> Layer:
        """This layer's result times ``factor`` plus ``offset``."""
        bias = None if self.bias is None else self.bias * factor
        if np.any(offset):
            bias = (np.zeros(()) if bias is None else bias) + offset
        if bias is not None:
            bias = np.broadcast_to(bias, (self.outputs,))
        return Layer(self.node, self._by_output(factor), bias)

    def scaled_before(self, factor: Numbers, offset: Numbers) -> Layer:
        """This layer of its input times ``factor`` plus ``offset``, which no padding may surround."""
        weight = self._by_input(factor)
        if not np.any(offset):
            return Layer(self.node, weight, self.bias)
        shift = self._by_input(offset)
        reduced = tuple(range(1, shift.ndim))
        if self.node.op_type == "Gemm" and not self.node.attributes.get_int("transB", 0):
            reduced = (0,)
        bias = np.zeros(()) if self.bias is None else self.bias
        return Layer(self.node, weight, bias + shift.sum(axis=reduced))

    def build(self, op: Any, value: ir.Value) -> ir.Value:
        """The node anew, on ``value``."""
        dtype = (value.dtype or ir.DataType.FLOAT).numpy()
        parts = [array(op, self.weight.astype(dtype))]
        if self.bias is not None:
            parts.append(array(op, np.broadcast_to(self.bias, (self.outputs,)).astype(dtype)))
        made: ir.Value = getattr(op, self.node.op_type)(value, *parts, **dict(self.node.attributes))
        return made

    def _by_output(self, numbers: Numbers) -> Numbers:
        if numbers.ndim == 0:
            return self.weight * numbers
        rest = (1,) * (self.weight.ndim - 2)
        match self.node.op_type:
            case "Conv":
                return self.weight * numbers.reshape(-1, 1, *rest)
            case "ConvTranspose":
                rows = self.weight.shape[0] // self.groups
                spread = np.repeat(numbers.reshape(self.groups, -1), rows, axis=0)
                return self.weight * spread.reshape(*self.weight.shape[:2], *rest)
            case "Gemm" if self.node.attributes.get_int("transB", 0):
                return self.weight * numbers[:, None]
        return self.weight * numbers

    def _by_input(self, numbers: Numbers) -> Numbers:
        if numbers.ndim == 0:
            return self.weight * numbers
        rest = (1,) * (self.weight.ndim - 2)
        match self.node.op_type:
            case "Conv":
                rows = self.weight.shape[0] // self.groups
                spread = np.repeat(numbers.reshape(self.groups, -1), rows, axis=0)
                return self.weight * spread.reshape(*self.weight.shape[:2], *rest)
            case "ConvTranspose":
                return self.weight * numbers.reshape(-1, 1, *rest)
            case "Gemm" if self.node.attributes.get_int("transB", 0):
                return self.weight * numbers
        return self.weight * numbers[:, None]


def layer_of(node: ir.Node | None) -> Layer | None:
    """The node as a layer, if its weights and bias are constant and in the plain form."""
    if node is None or node.domain != "" or node.op_type not in WEIGHTED:
        return None
    weight, given = constant(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else None
    bias = constant(given)
    if node.op_type == "LayerNormalization" and not _is_by_row(node):
        return None
    if weight is None or node.inputs[0] is None or (given is not None and bias is None):
        return None
    if node.op_type == "MatMul" and (weight.ndim != 2 or len(fixed_shape(node.inputs[0]) or ()) < 2):
        return None
    if node.op_type == "Gemm" and not _is_plain_gemm(node):
        return None
    layer = Layer(node, weight.astype(np.float64), None)
    if bias is None:
        return layer
    flat = _one_for_each(bias, layer.outputs)
    return None if flat is None else Layer(node, layer.weight, flat)


def _is_plain_gemm(node: ir.Node) -> bool:
    scales = {node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")}
    return scales == {1.0} and not node.attributes.get_int("transA", 0)


def _is_by_row(node: ir.Node) -> bool:
    """Whether it normalises the last axis, and gives nothing but the result."""
    rank = len(fixed_shape(node.outputs[0]) or ())
    return rank > 0 and node.attributes.get_int("axis", -1) in (-1, rank - 1) and len(node.outputs) == 1


def _one_for_each(bias: NDArray[Any], channels: int) -> Numbers | None:
    """A Gemm's bias may be a matrix; one with equal rows only by its shape is taken."""
    if bias.size != 1 and bias.shape[-1:] != (channels,):
        return None
    return (
        np.broadcast_to(bias.astype(np.float64).reshape(-1), (channels,))
        if bias.size in (1, channels)
        else None
    )
