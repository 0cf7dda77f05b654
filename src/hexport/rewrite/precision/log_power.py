"""The logarithm of a power spectrum, with a scale taken from the signal so that fp16 holds the squares.

re ──► a² ──┐                                       re ──► ÷ m·2⁻ᴷ ──► a² ──┐
im ──► a² ──┴► linear ──► Clip(f, ·) ──► Log ──►    im ──► ÷ m·2⁻ᴷ ──► a² ──┴► linear ──► Log
                                                           ──► + 2·(ln m − K·ln 2) ──► Max(·, ln f) ──►

m is the largest |re|, |im|; K leaves room for the squares and the sums after them. Loud and quiet signals
alike then use the whole range of fp16, where any fixed scale fails on one of them. When the transform that
makes re and im is linear, its input is scaled in the same way, since it can overflow by itself. A floor
that is added (p + 1e-10) becomes (√1e-10·2ᴷ / m)².
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchResult

from hexport.rewrite.precision.floored_log import FlooredLogRule
from hexport.rewrite.precision.fp16 import LARGEST, SMALLEST_NORMAL, number
from hexport.rewrite.precision.homogeneous import Path, rebuild, trace_linear, trace_power
from hexport.rewrite.precision.log_floor import Floor


@dataclass(frozen=True)
class _Plan:
    floor: Floor
    power: Path
    start: ir.Value | None
    """What the linear transform before the squares starts from, if its results may overflow."""
    room: float


class LogPower(FlooredLogRule):
    def check_floor(self, result: MatchResult, x: ir.Value, bound: Floor) -> MatchResult:
        power = trace_power(bound.value)
        if power is None:
            return result.fail("what it takes the logarithm of is not made of squares and linear steps", x)
        if power.degree not in (1, 2):
            return result.fail(f"the degree {power.degree:g} is neither a magnitude's nor a power's", x)
        start, room = self._start(power)
        self._plan = _Plan(bound, power, start, room)
        return result

    def _start(self, power: Path) -> tuple[ir.Value | None, float]:
        """The one tensor from which all that is squared comes linearly, unless there is no need of it."""
        paths = [trace_linear(source) for source in power.sources]
        starts = {start for path in paths for start in path.sources}
        if len(starts) != 1 or starts <= set(power.sources) or self._fits(power.sources):
            return None, 0.0
        return starts.pop(), min(path.room for path in paths)

    def _fits(self, sources: tuple[ir.Value, ...]) -> bool:
        measured = [self.ranges.get(source.name or "") for source in sources]
        return all(r is not None and max(-r.low, r.high) < LARGEST / 16 for r in measured)

    def rewrite(self, op: Any, x: ir.Value) -> Any:  # noqa: ARG002
        plan, replaced, scales = self._plan, {}, []
        like = plan.floor.value
        if plan.start is not None:
            scales.append(_Scale(op, like, [plan.start], floor(plan.room)))
            replaced[plan.start] = scales[0].apply(op, plan.start)
        sources = [rebuild(op, source, replaced) for source in plan.power.sources]
        scales.append(_Scale(op, like, sources, floor(plan.power.room)))
        scaled = {
            old: scales[-1].apply(op, new) for old, new in zip(plan.power.sources, sources, strict=True)
        }
        p, degree = rebuild(op, like, scaled), plan.power.degree
        if plan.floor.added:
            p = op.Add(p, _scaled_floor(op, like, plan.floor.low, degree, scales))
        return plan.floor.logarithm(op, p, [scale.logarithm(op, degree) for scale in scales])


class _Scale:
    """Numbers divided by the largest of them, m, and multiplied by 2 to the power of ``room``."""

    def __init__(self, op: Any, like: ir.Value, values: list[Any], room: int) -> None:
        self.like = like
        self.room = room
        largest = [op.ReduceMax(op.Abs(value), keepdims=0) for value in values]
        # Silence must not divide by 0.
        self.m = op.Max(*largest, number(op, like, SMALLEST_NORMAL))

    def apply(self, op: Any, value: Any) -> Any:
        return op.Mul(op.Div(value, self.m), number(op, self.like, 2.0**self.room))

    def logarithm(self, op: Any, degree: float) -> Any:
        """What the scale took from the logarithm of a value of this degree."""
        scaled = op.Sub(op.Log(self.m), number(op, self.like, self.room * log(2)))
        return scaled if degree == 1 else op.Mul(scaled, number(op, self.like, degree))


def _scaled_floor(op: Any, like: ir.Value, low: float, degree: float, scales: list[_Scale]) -> Any:
    value = number(op, like, low ** (1 / degree))
    for scale in scales:
        value = scale.apply(op, value)
    # In silence it would overflow; there the Max after the logarithm gives the floor.
    value = op.Min(value, number(op, like, (LARGEST / 2) ** (1 / degree)))
    return value if degree == 1 else op.Mul(value, value)
