"""How real numbers are written as integers: the types, and the scale and zero point of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.axes import along

Floats = NDArray[Any]
Integers = NDArray[Any]

SMALLEST_SCALE = 1e-12
"""A scale of 0 would divide by it; a tensor that is 0 throughout has no scale of its own."""


class QType(Enum):
    """An integer type and the numbers of it that are used."""

    U8 = (ir.DataType.UINT8, 0, 255)
    S8 = (ir.DataType.INT8, -128, 127)
    U16 = (ir.DataType.UINT16, 0, 65535)
    S16 = (ir.DataType.INT16, -32768, 32767)
    S4 = (ir.DataType.INT4, -8, 7)
    S32 = (ir.DataType.INT32, -(2**31), 2**31 - 1)

    @staticmethod
    def of(dtype: ir.DataType | None) -> QType | None:
        """The type that is stored so."""
        return next((type_ for type_ in QType if type_.dtype == dtype), None)

    @property
    def dtype(self) -> ir.DataType:
        return self.value[0]

    @property
    def low(self) -> int:
        return self.value[1]

    @property
    def high(self) -> int:
        return self.value[2]

    @property
    def signed(self) -> bool:
        return self.low < 0

    @property
    def steps(self) -> int:
        """Intervals from end to end."""
        return self.high - self.low

    @property
    def bits(self) -> int:
        return (self.steps + 1).bit_length() - 1

    @property
    def array(self) -> np.dtype[Any]:
        """Of the arrays that hold such integers: numpy has none of 4 bits."""
        return np.dtype(np.int8) if self is QType.S4 else self.dtype.numpy()


@dataclass(frozen=True)
class Encoding:
    """real = (integer − zero_point) · scale; one pair for the tensor, or one for each slice along ``axis``.

    ``block`` > 0: one for each run of so many elements along ``axis``.
    """

    type: QType
    scale: Floats
    zero_point: int = 0
    axis: int | None = None
    block: int = 0

    @property
    def low(self) -> float:
        """The least number of a whole tensor's encoding."""
        return (self.type.low - self.zero_point) * float(self.scale)

    @property
    def high(self) -> float:
        return (self.type.high - self.zero_point) * float(self.scale)

    def integers(self, values: Floats) -> Integers:
        """Rounded to the nearest; in float64, because float32 has too few digits for the steps of a bias."""
        # In place: the float64 copies of an embedding table are hundreds of megabytes each.
        exact = np.asarray(np.divide(values, self._spread(values), dtype=np.float64))
        np.rint(exact, out=exact)
        exact += self.zero_point
        np.clip(exact, self.type.low, self.type.high, out=exact)
        return exact.astype(self.type.array)

    def reals(self, integers: Integers) -> Floats:
        """What the integers stand for, as float32."""
        exact = np.asarray(np.subtract(integers, self.zero_point, dtype=np.float64))
        exact *= self._spread(integers)
        return exact.astype(np.float32)

    def _spread(self, values: NDArray[Any]) -> Floats:
        """The scale in a shape that fits ``values``."""
        if self.axis is None:
            return self.scale
        if self.block:
            wide = np.repeat(self.scale, self.block, axis=self.axis)
            return np.take(wide, range(values.shape[self.axis]), axis=self.axis)
        return self.scale.reshape(along(self.axis, values.ndim))


def asymmetric(low: float, high: float, type_: QType) -> Encoding:
    """The encoding of activations: 0 is exact, the ends are reached."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        # Zero throughout, as the first state of a recurrence is: any scale writes it, and a tiny one would
        # make the weights that read it coarse.
        high = 1.0
    scale = max(np.float32((high - low) / type_.steps), np.float32(SMALLEST_SCALE))
    zero_point = int(np.clip(np.rint(type_.low - low / scale), type_.low, type_.high))
    return Encoding(type_, np.asarray(scale, np.float32), zero_point)


def symmetric(magnitude: float | Floats, type_: QType, axis: int | None = None) -> Encoding:
    """The encoding of weights: no zero point, so that the least integer is never used."""
    scale = np.maximum(np.asarray(magnitude, np.float64) / type_.high, SMALLEST_SCALE)
    zero_point = 0 if type_.signed else (type_.high + 1) // 2
    if not type_.signed:
        scale = np.maximum(np.asarray(magnitude, np.float64) / (type_.high - zero_point), SMALLEST_SCALE)
    return Encoding(type_, scale.astype(np.float32), zero_point, axis)
