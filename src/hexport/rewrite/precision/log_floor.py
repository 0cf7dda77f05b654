"""The constant that keeps numbers away from 0 before a logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log
from typing import Any

import onnx_ir as ir

from hexport.rewrite.precision.fp16 import number, producer
from hexport.rewrite.values import scalar


@dataclass(frozen=True)
class Floor:
    """``Clip(value, low, high)``, ``Max(value, low)`` or ``Add(value, low)``."""

    value: ir.Value
    low: float
    high: float = inf
    added: bool = False

    def logarithm(self, op: Any, scaled: Any, offsets: Sequence[Any]) -> Any:
        """ln of the bounded value, from the value times a scale and what the scale took from the logarithm.

        The bounds come after the logarithm, which is monotonous: there fp16 holds them. What is 0 is
        taken out, because the HTP's Log(0) is −7.6.
        """
        low = number(op, self.value, log(self.low))
        result = op.Log(scaled)
        for offset in offsets:
            result = op.Add(result, offset)
        result = op.Where(op.Greater(scaled, number(op, self.value, 0.0)), result, low)
        result = op.Max(result, low)
        if isfinite(self.high) and self.high < 3e38:
            result = op.Min(result, number(op, self.value, log(self.high)))
        return result


def find_floor(value: ir.Value) -> Floor | None:
    """The floor right before ``value``; None without one, or if it is not a constant above 0."""
    if (clip := producer(value, "Clip")) is not None:
        low, high = _clip_bounds(clip)
        return _floor(clip.inputs[0], low, high)
    node = producer(value, "Max", "Add")
    if node is None or len(node.inputs) != 2:
        return None
    for position in (0, 1):
        if (low := scalar(node.inputs[position])) is not None:
            return _floor(node.inputs[1 - position], low, inf, added=node.op_type == "Add")
    return None


def _floor(
    value: ir.Value | None, low: float | None, high: float | None, *, added: bool = False
) -> Floor | None:
    if value is None or low is None or high is None or not 0 < low < high:
        return None
    return Floor(value, low, high, added)


def _clip_bounds(clip: ir.Node) -> tuple[float | None, float | None]:
    """Attributes before opset 11, inputs since; None if one is not constant."""
    if len(clip.inputs) == 1:
        return clip.attributes.get_float("min", -inf), clip.attributes.get_float("max", inf)
    bounds = [*clip.inputs[1:], None, None][:2]
    defaults = (-inf, inf)
    low, high = (d if b is None else scalar(b) for b, d in zip(bounds, defaults, strict=True))
    return low, high
