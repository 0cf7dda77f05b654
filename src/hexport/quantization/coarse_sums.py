"""What the HTP leaves off the sums of a layer with 16-bit activations, and biases that make up for it.

It multiplies byte by byte. For every byte beyond the first of an activation and of a weight, eight bits of
the sum are left off: it comes in multiples of a *grain* of 256, beside 16-bit weights of 65536.

    Σ x·w        ──► down to a multiple ──────────┐
    bias         ──► towards 0 (down before v73) ─┼─► + ──► · scale ──► y
    −zero · Σ w  ──► to the nearest multiple ─────┘

A sum so loses half a grain on the average, and a bias that is no multiple up to a whole one. That is nothing
beside the products of a thousand inputs, but much in a depthwise channel with small inputs and large weights.
A bias is therefore stored as a multiple, the nearest to itself and what the other two parts lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from hexport.facts.integer_ops import integer_rules
from hexport.model.axes import along
from hexport.quantization.encoding import Floats, Integers, QType
from hexport.quantization.roles import weight_place

_LEAST_SHOWN = 0.25
"""Of a step: a grain that is smaller is lost in the rounding."""


@dataclass(frozen=True)
class CoarseSum:
    """How a layer's sum is cut off, in its own steps."""

    grain: int
    """1: nothing is left off."""
    lost: Floats
    """On the average, without the bias; one number for each channel, or for all."""
    rank: int = 2
    """Of the layer's results."""

    def grains(self, bias: Integers, scale: Floats) -> Grains:
        """In the numbers that are meant, for a bias that :meth:`made_up` gave and its scale."""
        phase = ((self.grain - 1) / 2 - self.lost) / self.grain
        exact = np.asarray(scale, np.float64)
        return Grains(exact * (self.grain if self.grain > 1 else 0), phase, bias * exact, self.rank)

    def made_up(self, bias: Integers) -> Integers:
        """The multiple of the grain that gives what was meant by ``bias``."""
        exact = np.rint((bias + self.lost) / self.grain) * self.grain
        whole: Integers = np.clip(exact, QType.S32.low, QType.S32.high - self.grain + 1).astype(bias.dtype)
        return whole


@dataclass(frozen=True)
class Grains:
    """What results are on the HTP: ⌊(y − bias) / size + phase⌋ · size + bias, channel by channel."""

    size: Floats
    """0: nothing is left off."""
    phase: Floats
    bias: Floats
    """As it is stored, so that it is whole grains."""
    rank: int
    """Of the results, whose channels are along axis 1."""

    def shows(self, step: float) -> bool:
        """Whether it can be seen in results of this step."""
        return float(np.max(self.size, initial=0)) > _LEAST_SHOWN * step

    def nodes(self, value: ir.Value, constant: Callable[[Floats], ir.Value]) -> list[ir.Node]:
        """That as a chain of operators on ``value``, the result of a Conv, ConvTranspose or Gemm."""
        size, phase, bias = (
            np.broadcast_to(part, self.bias.shape).reshape(along(1, self.rank))
            for part in (self.size, self.phase, self.bias)
        )
        steps: list[tuple[str, list[Floats]]] = [
            ("Mul", [1 / size]),
            ("Add", [phase - bias / size]),
            ("Floor", []),
            ("Mul", [size]),
            ("Add", [bias]),
        ]
        found: list[ir.Node] = []
        for op, operands in steps:
            before = found[-1].outputs[0] if found else value
            found.append(ir.node(op, [before, *(constant(array.astype(np.float32)) for array in operands)]))
        return found


def coarse_sum(layer: ir.Node, data: QType, zero_point: int, weight: QType, integers: Integers) -> CoarseSum:
    """For a layer with these weights that reads ``data`` with this zero point."""
    grain = _grain(data, weight)
    place = weight_place(layer)
    lost = np.asarray((grain - 1) / 2)
    # Of a transposed convolution every place of the result sums other weights.
    if place is not None and place.axis is not None and layer.op_type != "ConvTranspose":
        others = tuple(axis for axis in range(integers.ndim) if axis != place.axis)
        shift = -zero_point * integers.sum(axis=others, dtype=np.int64)
        lost = lost - (np.rint(shift / grain) * grain - shift)
    return CoarseSum(grain, lost, integers.ndim)


def stored_sum(layer: ir.Node) -> CoarseSum | None:
    """The same of a layer in a quantised model; None: it does not compute in integers."""
    data, weight = (None if value is None else value.producer() for value in layer.inputs[:2])
    if data is None or weight is None or not data.op_type == weight.op_type == "DequantizeLinear":
        return None
    # hexport always writes a zero point; others may leave it out.
    zero, integers = _stored(data.inputs[2] if len(data.inputs) > 2 else None), _stored(weight.inputs[0])
    if zero is None or integers is None or zero.size != 1 or "block_size" in weight.attributes:
        # Weights in blocks are computed in fp16.
        return None
    # A zero point has the type of what it is for.
    read, kept = QType.of(zero.dtype), QType.of(integers.dtype)
    if read is None or kept is None:
        return None
    return coarse_sum(layer, read, int(zero.numpy().item()), kept, integers.numpy())


def _stored(value: ir.Value | None) -> ir.TensorProtocol | None:
    return None if value is None else ir.convenience.get_const_tensor(value)


def _grain(data: QType, weight: QType) -> int:
    per_byte = integer_rules()["coarse-sums"].value
    assert per_byte is not None
    grain: int = int(per_byte) ** (_bytes(data) + _bytes(weight) - 2)
    return grain


def _bytes(type_: QType) -> int:
    return -(-type_.bits // 8)
