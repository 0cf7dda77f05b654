"""How close two sets of outputs are: in decibels, by the worst element, and by what the task would decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]

EXACT = math.inf
_FEWEST_CLASSES = 3
"""Along an axis of fewer the largest one decides nothing."""
_THRESHOLD = 0.5
_WHOLE = 1e-2
"""Probabilities of one choice add up to 1, but for rounding."""
_QUIET = 1e-2
"""Of the usual power: a sample with less has almost nothing in it, and noise is measured against this much. A
picture without text leaves a text detector's map empty; any rounding is larger than nothing."""
_FAINT = (10 * 2.0**-14) ** 2
"""Power that what comes of random inputs is taken to have at least. They give that detector a map of
millionths; fp16 has no ordinary number below 2⁻¹⁴, and what it drops there is nobody's fault."""


@dataclass(frozen=True)
class Agreement:
    """What a user of the outputs would decide: how often the same."""

    by: str
    """``argmax``, the largest entry along the last axis, or ``threshold``, above or below 0.5."""
    share: float

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % ({self.by})"


@dataclass(frozen=True)
class OutputComparison:
    """One output over all samples."""

    name: str
    sqnr_db: float
    """Median over the samples of 10·log10(signal / noise); infinite when equal, −infinite when broken."""
    worst_error: float
    """Largest absolute difference."""
    same_argmax: float | None
    """Share of positions with the same largest entry along the last axis; None where that means nothing."""
    same_side: float | None = None
    """Share of elements on the same side of 0.5; None unless all of the reference lies within 0 and 1."""
    one_choice: bool = False
    """Whether the reference's rows are the probabilities of one choice: within 0 and 1, adding up to 1."""
    lowest_db: float = -math.inf
    """Of the worst sample; of a quiet one, against a hundredth of the usual power."""
    worst_sample: int = 0
    """Its number."""
    mean_db: float = -math.inf
    """Of the mean noise over the samples, each against its own signal."""
    quiet: int = 0
    """Samples with less than that in the reference."""
    faint: bool = False
    """Whether random inputs left less in it than fp16 can hold."""
    note: str = ""
    """Set when the two cannot be compared: another shape or dtype."""

    @property
    def remark(self) -> str:
        """What a reader of ``lowest_db`` should know; empty mostly."""
        if self.faint:
            return (
                f"{self.name} is fainter on random inputs than fp16 can hold: its noise was measured against "
                f"{math.sqrt(_FAINT):.0e}, and says little"
            )
        if not self.quiet:
            return ""
        return (
            f"{self.name} is almost silent in {self.quiet} of the samples: their noise was measured against "
            "a hundredth of its usual power"
        )

    @property
    def agreement(self) -> Agreement | None:
        """The measure that suits the output: probabilities apart from each other are judged one by one."""
        if self.same_side is not None and not (self.one_choice and self.same_argmax is not None):
            return Agreement("threshold", self.same_side)
        return None if self.same_argmax is None else Agreement("argmax", self.same_argmax)


@dataclass(frozen=True)
class Comparison:
    """Every output."""

    outputs: tuple[OutputComparison, ...]

    @property
    def sqnr_db(self) -> float:
        """Of the worst output."""
        return min((output.sqnr_db for output in self.outputs), default=EXACT)

    @property
    def lowest_db(self) -> float:
        """Of the worst output and sample: what is sure."""
        return min((output.lowest_db for output in self.outputs), default=EXACT)

    @property
    def mean_db(self) -> float:
        """Of the worst output, over all samples: neither the median, which has no eye for the worst of them,
        nor the worst alone, which is chance."""
        return min((output.mean_db for output in self.outputs), default=EXACT)

    @property
    def worst_sample(self) -> int:
        """The number of the sample that ``lowest_db`` is of."""
        lowest = min(self.outputs, key=lambda output: output.lowest_db, default=None)
        return 0 if lowest is None else lowest.worst_sample

    @property
    def worst(self) -> OutputComparison | None:
        return min(self.outputs, key=lambda output: output.sqnr_db, default=None)

    @property
    def agreement(self) -> Agreement | None:
        """Of the output that agrees least; None when none decides anything."""
        found = [output.agreement for output in self.outputs if output.agreement is not None]
        return min(found, key=lambda agreement: agreement.share, default=None)


def compare(expected: Sequence[Outputs], got: Sequence[Outputs], *, real: bool = True) -> Comparison:
    """``got`` against ``expected``, sample by sample; ``real``: what they come from was not made up."""
    names = list(expected[0]) if expected else []
    least = 0.0 if real else _FAINT
    return Comparison(tuple(_compare_one(name, expected, got, least) for name in names))


def _compare_one(
    name: str, expected: Sequence[Outputs], got: Sequence[Outputs], least: float
) -> OutputComparison:
    import numpy as np

    pairs = [
        (np.asarray(e[name]), np.asarray(g[name])) for e, g in zip(expected, got, strict=True) if name in g
    ]
    if len(pairs) < len(expected):
        return OutputComparison(name, -math.inf, math.inf, None, note="the output is missing")
    for old, new in pairs:
        if old.shape != new.shape or old.dtype != new.dtype:
            note = f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
            return OutputComparison(name, -math.inf, math.inf, None, note=note)
    probabilities = all(_within_0_and_1(old) for old, _ in pairs)
    ratios = [_sqnr(old, new, least) for old, new in pairs]
    powers = [_power(old) for old, _ in pairs]
    usual = _QUIET * _median(powers)
    quiet = [number for number, power in enumerate(powers) if power < usual]
    fair = list(ratios)
    for number in quiet:
        fair[number] = _sqnr(*pairs[number], max(usual, least))
    return OutputComparison(
        name,
        sqnr_db=_median(ratios),
        worst_error=max(_worst_error(old, new) for old, new in pairs),
        same_argmax=_mean([share for old, new in pairs if (share := _same_argmax(old, new)) is not None]),
        same_side=_mean([_same_side(old, new) for old, new in pairs]) if probabilities else None,
        one_choice=probabilities and all(_adds_up_to_1(old) for old, _ in pairs),
        lowest_db=min(fair),
        worst_sample=fair.index(min(fair)),
        mean_db=_mean_db(fair),
        quiet=len(quiet),
        faint=0 < _median(powers) < least,
    )


def _median(numbers: list[float]) -> float:
    """Without the libraries that have one: statistics brings decimals along, numpy its masked arrays."""
    ordered, middle = sorted(numbers), len(numbers) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def _mean_db(ratios: list[float]) -> float:
    if -math.inf in ratios:
        return -math.inf
    noise = sum(10 ** (-ratio / 10) for ratio in ratios) / len(ratios)
    return -10 * math.log10(noise) if noise else EXACT


def _mean(shares: list[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def _power(old: NDArray[np.generic]) -> float:
    """The mean square of what is a number in it; of integers, which are right or wrong, none."""
    import numpy as np

    if not np.issubdtype(old.dtype, np.floating):
        return 0.0
    numbers = old.astype(np.float64)
    finite = np.isfinite(numbers)
    return float(np.mean(numbers[finite] ** 2)) if finite.any() else 0.0


def _sqnr(old: NDArray[np.generic], new: NDArray[np.generic], least: float = 0.0) -> float:
    """``least``: the mean square of the signal is taken to be this much at least."""
    import numpy as np

    if np.array_equal(old, new, equal_nan=True):
        return EXACT
    if not _is_number(old):
        return -math.inf
    reference, result = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(reference)
    # Where the reference itself is not a number, nothing can be right or wrong; elsewhere it must be one.
    if not np.isfinite(result[finite]).all():
        return -math.inf
    noise = float(np.sum((result[finite] - reference[finite]) ** 2))
    signal = max(float(np.sum(reference[finite] ** 2)), least * int(finite.sum()))
    if noise == 0:
        return EXACT
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def _worst_error(old: NDArray[np.generic], new: NDArray[np.generic]) -> float:
    import numpy as np

    if old.size == 0 or not _is_number(old):
        return 0.0 if np.array_equal(old, new) else math.inf
    with np.errstate(invalid="ignore"):  # of two infinities
        difference = np.abs(new.astype(np.float64) - old.astype(np.float64))
    return math.inf if np.isnan(difference).all() else float(np.nanmax(difference))


def _same_argmax(old: NDArray[np.generic], new: NDArray[np.generic]) -> float | None:
    import numpy as np

    if (
        old.ndim == 0
        or old.size == 0
        or old.shape[-1] < _FEWEST_CLASSES
        or not np.issubdtype(old.dtype, np.floating)
    ):
        return None
    return float(np.mean(old.argmax(-1) == new.argmax(-1)))


def _within_0_and_1(old: NDArray[np.generic]) -> bool:
    import numpy as np

    if old.size == 0 or not np.issubdtype(old.dtype, np.floating):
        return False
    numbers = old.astype(np.float64)
    return bool((numbers >= 0).all() and (numbers <= 1).all())


def _adds_up_to_1(old: NDArray[np.generic]) -> bool:
    import numpy as np

    return old.ndim > 0 and bool(np.allclose(old.astype(np.float64).sum(-1), 1.0, atol=_WHOLE))


def _same_side(old: NDArray[np.generic], new: NDArray[np.generic]) -> float:
    import numpy as np

    before, after = old.astype(np.float64), new.astype(np.float64)
    # What is not a number is on neither side.
    return float(np.mean(((before >= _THRESHOLD) == (after >= _THRESHOLD)) & ~np.isnan(after)))


def _is_number(array: NDArray[np.generic]) -> bool:
    import numpy as np

    return bool(np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_)
