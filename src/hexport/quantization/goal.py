"""How near a candidate must come on the CPU: to the goal where it has not seen the samples, nearly to it on
those that it was fitted to and that turned out hard."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.quantization.candidates import Candidate

UNSEEN_DB = 4.0
"""Above what is asked for: a few samples are judged, from where those come that it was fitted to, and others
may be worse by that. EfficientNet-Lite0 loses 3.6 dB on photographs from elsewhere."""


def missing_db(candidate: Candidate, wanted_db: float) -> float:
    """How much it is short; not positive when it is not."""
    missing = wanted_db - candidate.cpu.lowest_db
    hard = candidate.hard
    return missing if hard is None else max(missing, wanted_db - UNSEEN_DB - hard.lowest_db)


def noise_allowed(wanted_db: float, outputs: int, hard: int) -> NDArray[Any]:
    """The same as noise over signal: for every output of one unseen sample, and of so many hard ones."""
    each = [wanted_db, *[wanted_db - UNSEEN_DB] * hard]
    return np.repeat(10 ** (-np.array(each) / 10), outputs)
