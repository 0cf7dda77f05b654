"""How far two sets of outputs are apart: in decibels, by the worst element, and in tolerances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hexport import facts
from hexport.backend.running import run_on_htp
from hexport.observe.comparing import Agreement, OutputComparison, compare
from hexport.observe.decibels import finite
from hexport.packaging.manifest import Contract, OutputFigure
from hexport.runtime.padding import cut
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample
    from hexport.observe.comparing import Outputs

_DIGITS = 3


@dataclass(frozen=True)
class Element:
    """Where the two are furthest apart."""

    sample: int
    index: tuple[int, ...]
    expected: float | str
    got: float | str
    """Text where an element is none of the numbers that JSON has."""


@dataclass(frozen=True)
class OutputFinding:
    """One output over all samples."""

    name: str
    sqnr_db: float
    """Of the worst sample; infinite when all are equal, −infinite when one is broken."""
    max_abs_error: float
    """Infinite where the reference has a number and the other has none."""
    worst: Element | None
    """None when they are equal or cannot be compared."""
    atol_needed: float
    """The smallest atol that passes with the rtol asked for, or with 0; rounded up."""
    rtol_needed: float
    """The smallest rtol that passes with the atol asked for, or with 0; infinite: none would."""
    within: bool
    """Whether every element is within the tolerance asked for: 0 and 0 where none was."""
    agreement: Agreement | None = None
    note: str = ""
    """Set when the two cannot be compared: missing, another shape or type."""
    remark: str = ""
    """What a reader of the figures should know."""

    @property
    def figure(self) -> OutputFigure:
        """What a package's manifest says of it."""
        return OutputFigure(self.name, finite(self.sqnr_db), _number(self.max_abs_error))

    def to_json(self) -> dict[str, object]:
        worst = self.worst
        return {
            "name": self.name,
            "sqnr_db": finite(self.sqnr_db),
            "max_abs_error": _number(self.max_abs_error),
            "worst": None if worst is None else {**vars(worst), "index": list(worst.index)},
            "atol_needed": _number(self.atol_needed),
            "rtol_needed": _number(self.rtol_needed),
            "agreement": None if self.agreement is None else vars(self.agreement),
            "note": self.note,
            "remark": self.remark,
        }


def compare_on(
    model: Path,
    reference_outputs: Sequence[Outputs],
    samples: Sequence[Sample],
    soc: facts.Soc,
    *,
    contract: Contract | None = None,
    dims: Mapping[str, int] | None = None,
    real: bool = True,
    options: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> tuple[OutputFinding, ...]:
    """Run ``model`` on the simulator and compare. ``samples`` have its sizes; with a ``contract`` the outputs
    are cut to those of ``dims``, as if the samples had been filled up from there. ``real``: they are no
    random numbers."""
    got: Sequence[Outputs] = run_on_htp(model, samples, soc, options=options, limits=limits).outputs
    if contract is not None:
        got = [cut(outputs, contract, dims or {}) for outputs in got]
    return find(reference_outputs, got, real=real)


def find(
    expected: Sequence[Outputs],
    got: Sequence[Outputs],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    real: bool = True,
) -> tuple[OutputFinding, ...]:
    """Every output of ``expected`` against the one of the same name."""
    compared = compare(expected, got, real=real).outputs
    return tuple(_find_one(found, expected, got, rtol, atol) for found in compared)


def _find_one(
    found: OutputComparison, expected: Sequence[Outputs], got: Sequence[Outputs], rtol: float, atol: float
) -> OutputFinding:
    if found.note:
        return OutputFinding(
            found.name, -math.inf, math.inf, None, math.inf, math.inf, False, note=found.note
        )
    worst_error, worst, atol_needed, rtol_needed, within = 0.0, None, 0.0, 0.0, True
    for number, (old, new) in enumerate(zip(expected, got, strict=True)):
        before, after = np.asarray(old[found.name]), np.asarray(new[found.name])
        errors, sizes = _errors(before, after), _sizes(before)
        if not errors.size:
            continue
        place = np.unravel_index(int(errors.argmax()), errors.shape)
        if errors[place] > worst_error:
            worst_error = float(errors[place])
            index = tuple(int(i) for i in place)
            worst = Element(number, index, _plain(before[place]), _plain(after[place]))
        atol_needed = max(atol_needed, float((errors - rtol * sizes).max()))
        rtol_needed = max(rtol_needed, _rtol(errors - atol, sizes))
        within = within and bool((errors <= atol + rtol * sizes).all())
    return OutputFinding(
        found.name,
        found.lowest_db,
        worst_error,
        worst,
        _rounded_up(atol_needed),
        _rounded_up(rtol_needed),
        within,
        found.agreement,
        remark=found.remark,
    )


def _errors(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.float64]:
    """The distance of each element; where the reference itself is no number nothing can be wrong."""
    old, new = before.astype(np.float64), after.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(new - old)
    distance = np.where(np.isnan(distance), np.inf, distance)
    return np.where(np.isfinite(old) & (before != after), distance, 0.0)


def _sizes(before: NDArray[Any]) -> NDArray[np.float64]:
    sizes = np.abs(before.astype(np.float64))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _rtol(excess: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    over = excess > 0
    if not over.any():
        return 0.0
    if (sizes[over] == 0).any():
        return math.inf
    return float((excess[over] / sizes[over]).max())


def _rounded_up(value: float) -> float:
    """To a few digits, so that it can be typed and still passes."""
    if value <= 0 or not math.isfinite(value):
        return max(value, 0.0)
    value *= 1 + 1e-9  # what is asked for is computed in other roundings than what was measured
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{math.ceil(value / step) * step:.{_DIGITS}g}")


def _plain(element: Any) -> float | str:
    value = element.item() if hasattr(element, "item") else element
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return value
    return str(value)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
