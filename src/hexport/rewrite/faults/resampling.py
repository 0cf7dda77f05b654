"""What Resize computes along one axis, as numbers: which elements each place takes, with which weights.

Coordinates are reckoned as ONNX Runtime does, in float32 but for the symmetric ones: a place that falls
between two elements must fall to the same side here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class Resampling:
    """Resize on one axis."""

    size: int
    out: int
    scale: float
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False

    @property
    def fills(self) -> bool:
        """The scale is the quotient of the sizes, which is all that the compiler looks at."""
        return bool(np.isclose(self.scale * self.size, self.out, rtol=1e-6, atol=0))

    def places(self) -> NDArray[np.float32]:
        """Where each element of the output lies, in the input's coordinates."""
        half = np.float32(0.5)
        at, scale = np.arange(self.out, dtype=np.float32), np.float32(self.scale)
        if self.coordinates == "asymmetric":
            return at / scale
        if self.coordinates == "align_corners":
            return at * np.float32(self.size - 1) / np.float32(max(self.out - 1, 1))
        if self.coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1, np.float32)
        if self.coordinates == "half_pixel_symmetric":
            return self._symmetric(at.astype(np.float64), float(scale)).astype(np.float32)
        return (at + half) / scale - half

    def _symmetric(self, at: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """Around the middle of the input; in float64, as ONNX Runtime has it."""
        offset = self.size / 2 * (1 - self.out / (scale * self.size))
        return offset + (at + 0.5) / scale - 0.5

    def indices(self) -> NDArray[np.int64]:
        """For mode nearest: the one element that each place takes."""
        at = self.places()
        half = np.float32(0.5)
        rounded = {
            "floor": np.floor(at),
            "ceil": np.ceil(at),
            "round_prefer_floor": np.ceil(at - half),
            "round_prefer_ceil": np.floor(at + half),
        }[self.nearest]
        inside: NDArray[np.int64] = np.clip(rounded, 0, self.size - 1).astype(np.int64)
        return inside

    def matrix(self) -> NDArray[np.float64]:
        """For modes linear and cubic: the weights, one row a place of the input, one column of the output."""
        at = self.places().astype(np.float64)
        if self.mode == "linear":
            at = np.clip(at, 0, self.size - 1)
        first = np.floor(at).astype(np.int64)
        share = at - first
        taps = _cubic(share, self.cubic) if self.mode == "cubic" else {0: 1 - share, 1: share}
        weights = np.zeros((self.size, self.out))
        for step, weight in taps.items():
            inside = (first + step >= 0) & (first + step < self.size)
            kept = weight * inside if self.exclude_outside else weight
            np.add.at(weights, (np.clip(first + step, 0, self.size - 1), np.arange(self.out)), kept)
        return weights / weights.sum(axis=0) if self.exclude_outside else weights


def _cubic(share: NDArray[np.float64], a: float) -> dict[int, NDArray[np.float64]]:
    """Keys' weights of the four elements around a place that is ``share`` past the second."""
    near, far = share, 1 - share

    def inner(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def outer(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return {-1: outer(near + 1), 0: inner(near), 1: inner(far), 2: outer(far + 1)}
