"""A logarithm with a floor that fp16 does not have: scaled before, the floor moved behind it.

x ──► Clip(f, ·) ──► Log ──► y      x ──► Mul(·, S) ──► Log ──► Sub(·, ln S) ──► Max(·, ln f) ──► y
x ──► Add(·, e) ──► Log ──► y       x ──► Mul(·, S) ──► Add(·, e·S) ──► Log ──► Sub(·, ln S) ──► y

Below 6e-8 a constant is 0 on the NPU, whose Log(0) is −7.6. S is a power of two that lifts the floor into
fp16 and keeps x, of which the largest value must be known, below 65504.
"""

from __future__ import annotations

from math import ceil, log, log2
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchResult

from hexport.rewrite.precision.floored_log import FlooredLogRule
from hexport.rewrite.precision.fp16 import LARGEST, MOVES, SMALLEST, SMALLEST_NORMAL, number, producer
from hexport.rewrite.precision.log_floor import Floor

_AT_MOST_ONE = ("Softmax", "Sigmoid", "HardSigmoid", "Tanh", "Sin", "Cos", "Erf")


class LogScaled(FlooredLogRule):
    def check_floor(self, result: MatchResult, x: ir.Value, bound: Floor) -> MatchResult:
        if bound.low >= SMALLEST_NORMAL:
            return result.fail(f"fp16 holds the floor {bound.low:g}", x)
        largest = self._largest(bound.value)
        if largest is None:
            return result.fail("how large its input gets is not known", bound.value)
        exponent = self._exponent(bound, largest)
        if largest * 2.0**exponent > LARGEST:
            return result.fail(f"fp16 cannot hold both {largest:g} and the floor {bound.low:g}", bound.value)
        self._floor, self._exponent_of_scale = bound, exponent
        return result

    def _exponent(self, bound: Floor, largest: float) -> int:
        """An added floor takes part in sums and wants precision; one that clips must only be passed by."""
        wanted = SMALLEST_NORMAL if bound.added else SMALLEST
        room = int(log2(LARGEST / largest)) if largest > 0 else 0
        least = ceil(log2(SMALLEST / bound.low))
        return max(min(ceil(log2(wanted / bound.low)), room), least)

    def _largest(self, value: ir.Value) -> float | None:
        if (measured := self.ranges.get(value.name or "")) is not None:
            # Other inputs than the measured ones may go higher.
            return 4 * max(abs(measured.low), abs(measured.high))
        if producer(value, *_AT_MOST_ONE) is not None:
            return 1.0
        node = producer(value, *MOVES)
        return self._largest(node.inputs[0]) if node is not None and node.inputs[0] is not None else None

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        bound, exponent = self._floor, self._exponent_of_scale
        scaled = op.Mul(bound.value, number(op, x, 2.0**exponent))
        if bound.added:
            scaled = op.Add(scaled, number(op, x, bound.low * 2.0**exponent))
        return bound.logarithm(op, scaled, [number(op, x, -exponent * log(2))])
