"""What a zoo model is for, as a figure: how often its user would decide the same as with the float model.

Decibels do not say whether a text is still read or a voice still heard. Each figure is a share from 0 to 1 of
the float model's own decisions; an answer of another shape, or one that is not finite, agrees with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Outputs = Mapping[str, Array]
Pairs = Sequence[tuple[Array, Array]]
"""The float model's answer and the other's, sample by sample."""

TEXT_HERE = 0.3
"""Where PP-OCR's detectors cut their map into text and ground."""
SPEECH = 0.5
BLANK = 0
"""PP-OCR's recognisers have CTC's blank first."""


@dataclass(frozen=True)
class Task:
    """The figures of one kind of model, and how many inputs they are from at least."""

    count: int
    output: int
    """Which of the model's outputs decides."""
    figures: Mapping[str, Callable[[Pairs], float]]

    def measure(self, expected: Sequence[Outputs], got: Sequence[Outputs]) -> dict[str, float]:
        """Every figure, by its name."""
        name = list(expected[0])[self.output]
        pairs = [(e[name], g.get(name, np.empty(0))) for e, g in zip(expected, got, strict=True)]
        return {label: figure(pairs) for label, figure in self.figures.items()}


def task_of(kind: str) -> Task | None:
    """By what the model's inputs are made of; None where nothing is decided."""
    return _TASKS.get(kind)


def same_text(pairs: Pairs) -> float:
    """Lines whose text is the same, letter by letter; an answer is batch × steps × characters."""
    return _share([_sound(old, new) and _texts(old) == _texts(new) for old, new in pairs])


def ctc_text(scores: Array) -> tuple[int, ...]:
    """Steps × characters read greedily: the best of each step, repetitions once, blanks dropped."""
    best = scores.argmax(-1)
    begins = np.r_[True, best[1:] != best[:-1]]
    return tuple(int(letter) for letter in best[begins] if letter != BLANK)


def same_class(pairs: Pairs) -> float:
    """Rows with the same largest entry."""
    return _mean([_rows(old.argmax(-1) == _like(new, old).argmax(-1), old, new) for old, new in pairs])


def same_neighbour(pairs: Pairs) -> float:
    """Embeddings, one a sample, whose nearest other one by cosine is the same."""
    if not all(_sound(old, new) for old, new in pairs):
        return 0.0
    before, after = (nearest(np.stack([pair[side].ravel() for pair in pairs])) for side in (0, 1))
    return float(np.mean(before == after))


def nearest(embeddings: Array) -> Array:
    """For each row the index of that other row which points most nearly the same way."""
    length = np.linalg.norm(embeddings.astype(np.float64), axis=1, keepdims=True)
    unit = embeddings / np.maximum(length, np.finfo(np.float64).tiny)
    likeness = unit @ unit.T
    np.fill_diagonal(likeness, -np.inf)
    closest: Array = likeness.argmax(1)
    return closest


def same_speech(pairs: Pairs) -> float:
    """Frames that are speech, or not, in both."""
    return _mean([_rows((old > SPEECH) == (_like(new, old) > SPEECH), old, new) for old, new in pairs])


def same_pixels(pairs: Pairs) -> float:
    """Pixels on the same side of the detectors' threshold."""
    return _mean([_rows((old > TEXT_HERE) == (_like(new, old) > TEXT_HERE), old, new) for old, new in pairs])


def text_overlap(pairs: Pairs) -> float:
    """Text in both over text in either: most pixels are ground, which an empty map gets right as well."""
    shares = []
    for old, new in pairs:
        here, there = old > TEXT_HERE, _like(new, old) > TEXT_HERE
        either = int((here | there).sum())
        whole = int((here & there).sum()) / either if either else 1.0
        shares.append(whole if _sound(old, new) else 0.0)
    return _mean(shares)


def _texts(scores: Array) -> list[tuple[int, ...]]:
    return [ctc_text(line) for line in scores]


def _sound(old: Array, new: Array) -> bool:
    return old.shape == new.shape and bool(np.isfinite(new).all())


def _like(new: Array, old: Array) -> Array:
    """``new`` if it can be laid beside ``old``; what cannot counts as nothing (see ``_rows``)."""
    return new if new.shape == old.shape else np.zeros_like(old)


def _rows(same: Array, old: Array, new: Array) -> float:
    return float(np.mean(same)) if _sound(old, new) else 0.0


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)


def _share(agree: Sequence[bool]) -> float:
    return _mean([float(one) for one in agree])


_DETECTION = Task(3, 0, {"same pixels": same_pixels, "text overlap": text_overlap})
_TASKS: Mapping[str, Task] = {
    "text-lines": Task(8, 0, {"same text": same_text}),
    "text-lines-turned": Task(8, 0, {"same direction": same_class}),
    "text-scenes": _DETECTION,
    "seals": _DETECTION,
    "vad-frames": Task(32, 0, {"same speech": same_speech}),
    "vad-blocks": Task(6, 0, {"same speech": same_speech}),
    "file-bytes": Task(15, 0, {"same type": same_class}),
    "sentences": Task(10, -1, {"same neighbour": same_neighbour}),
    "photos": Task(6, 0, {"same class": same_class}),
}
