"""The user's own measure of a model's results: ``--metric MODULE:FUNC --max-drop X``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from hexport.errors import HexportError, UsageError
from hexport.quantization.data.live import load_named
from hexport.quantization.judging import Metric
from hexport.quantization.observing import Sample

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs

_FORM = "def FUNC(outputs, inputs): both are lists of dicts of arrays, one a sample; larger is better"


class BadMetric(HexportError):
    """The user's metric failed or gave no number."""

    code = "HX702"


def find_metric(
    given: str | Metric | None, max_drop: float | None, min_sqnr: float | None
) -> tuple[Metric | None, float | None]:
    """The function, made safe, and what it may lose; both None when there is none."""
    if given is None:
        if max_drop is not None:
            raise UsageError("--max-drop belongs to --metric", next="give both, or --min-sqnr instead")
        return None, None
    if min_sqnr is not None:
        raise UsageError("--metric and --min-sqnr are two goals", next="give one of them")
    if max_drop is None:
        raise UsageError("--metric needs --max-drop", why="it says how much of it may be lost")
    function = load_named(given) if isinstance(given, str) else given
    if not callable(function):
        raise UsageError(f"{given} cannot be called", next=_FORM)

    def measure(outputs: Sequence[Outputs], inputs: Sequence[Sample]) -> float:
        try:
            value = float(function(list(outputs), list(inputs)))
        except Exception as error:
            raise BadMetric(
                f"the metric {given} failed", why=f"{type(error).__name__}: {error}", next=_FORM
            ) from error
        if not isfinite(value):
            raise BadMetric(f"the metric {given} gave {value}", next=_FORM)
        return value

    return measure, max_drop
