"""How near a small part of a model comes to the CPU, where every element counts and infinities do too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hexport.rewrite.precision.fp16 import SMALLEST_NORMAL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


def nearness(expected: Mapping[str, Array], got: Mapping[str, Array]) -> float:
    """Signal to noise of the worst output in dB: infinite for equal, −infinite for what is no such number.

    Other than ``observe.comparing``, which asks what a user would see, this asks for a reason to doubt: whole
    numbers must be equal, and an infinity must be one on both sides.
    """
    return min((_one(array, got.get(name)) for name, array in expected.items()), default=math.inf)


def _one(expected: Array, got: Array | None) -> float:
    import numpy as np

    if got is None or got.dtype != expected.dtype or got.shape != expected.shape:
        return -math.inf
    if expected.dtype.kind != "f":
        return math.inf if np.array_equal(expected, got) else -math.inf
    want, have = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(want)
    if (
        not np.array_equal(want[~finite], have[~finite], equal_nan=True)
        or not np.isfinite(have[finite]).all()
    ):
        return -math.inf
    noise = float(np.sum((have[finite] - want[finite]) ** 2))
    # All zeros have no signal to compare with; then fp16's smallest ordinary number is it.
    signal = float(np.sum(want[finite] ** 2)) or SMALLEST_NORMAL**2
    return 10 * math.log10(signal / noise) if noise else math.inf
