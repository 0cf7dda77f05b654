"""GRU step by step: the compiler's own takes minutes in a model with others around it, and few forms.

              x ──► Sub ──► Sigmoid ──► Split ─┬─► z ─────────────────────────────────────┐
                     ▲                         └─► r ──► Mul ──► Sub ──► Tanh ──► n ─┬────│───────► Add ──► h'
h ──► Gemm(−Rᵀ) ──► Split ─────────────────────────────── ▲      ▲                  ▼    ▼          ▲
│                                           x ───────────────────┘                 Sub ──► Mul ──────┘
└───────────────────────────────────────────────────────────────────────────────────▲

for each step with linear_before_reset, after one Gemm over all of them (see ``recurrent``). Without it, r is
multiplied with h before the last third of R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.recurrent import RecurrentUnrolled, State, Step, Writer
from hexport.rewrite.recurrent_layer import Array, Direction, Layer
from hexport.rewrite.rule import Purpose


class GruUnrolled(RecurrentUnrolled):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"GRU"})
    op_type: ClassVar[str] = "GRU"
    activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")
    groups: ClassVar[tuple[int, ...]] = (2, 1)
    reset_after: bool

    def why_not(self) -> str:
        self.reset_after = bool(self.node.attributes.get_int("linear_before_reset", 0))
        return super().why_not()

    def input_bias(self, direction: Direction) -> Array:
        total: Array = super().input_bias(direction).copy()
        if self.reset_after:
            # The reset gate multiplies the candidate's recurrent bias too: it stays in the step.
            candidate = slice(len(total) // 3 * 2, None)
            total[candidate] = direction.input_bias[candidate]
        return total

    def step(self, writer: Writer, layer: Layer, direction: Direction) -> Step:
        op = writer.op
        gate, candidate = direction.activations
        recurrent = (self._after if self.reset_after else self._before)(writer, layer, direction)

        def step(inputs: Sequence[ir.Value], state: State) -> State:
            (hidden,) = state
            gates, candidate_of = recurrent(hidden)
            both = writer.activate(gate, op.Sub(inputs[0], gates))
            update, reset = writer.split(both, [layer.hidden] * 2, axis=1)
            new = writer.activate(candidate, op.Sub(inputs[1], candidate_of(reset)))
            return (op.Add(new, op.Mul(update, op.Sub(hidden, new))),)

        return step

    def _after(self, writer: Writer, layer: Layer, direction: Direction) -> Any:
        """One Gemm for all three gates; its last third is multiplied with the reset gate."""
        op, size = writer.op, layer.hidden
        weight = writer.constant(-direction.recurrence.T)
        bias = np.zeros_like(direction.recurrent_bias)
        bias[2 * size :] = -direction.recurrent_bias[2 * size :]
        written = writer.constant(bias)

        def recurrent(hidden: ir.Value) -> Any:
            gates, rest = writer.split(op.Gemm(hidden, weight, written), [2 * size, size], axis=1)
            return gates, lambda reset: op.Mul(reset, rest)

        return recurrent

    def _before(self, writer: Writer, layer: Layer, direction: Direction) -> Any:
        """The candidate's product waits for the reset gate."""
        op, size = writer.op, layer.hidden
        weight = -direction.recurrence.T
        gates, rest = writer.constant(weight[:, : 2 * size]), writer.constant(weight[:, 2 * size :])

        def recurrent(hidden: ir.Value) -> Any:
            return op.MatMul(hidden, gates), lambda reset: op.MatMul(op.Mul(reset, hidden), rest)

        return recurrent
