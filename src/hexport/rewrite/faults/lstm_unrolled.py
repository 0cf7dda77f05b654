"""LSTM step by step: the compiler's own is imprecise, and the more so the longer the sequence.

           x ──► Sub ──► Split ─┬─► Tanh ────► −g ─┐
                  ▲             ├─► Sigmoid ──► i ─┴─► Mul ─┐
h ──► MatMul(−Rᵀ)─┘             ├─► Sigmoid ──► f ─┐        ├─► Sub ─┬─► c'
c ──────────────────────────────│──────────────────┴─► Mul ─┘        └─► Tanh ─┐
                                └─► Sigmoid ──► o ─────────────────────────────┴─► Mul ──► h'

for each step, after one Gemm over all of them (see ``recurrent``). The candidate g is had with the other
sign, its weights negated, so that c' is a difference too: it goes into a Tanh, and alone in the last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.recurrent import RecurrentUnrolled, State, Step, Writer
from hexport.rewrite.recurrent_layer import Direction, Layer
from hexport.rewrite.rule import Purpose


class LstmUnrolled(RecurrentUnrolled):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"LSTM"})
    op_type: ClassVar[str] = "LSTM"
    activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")
    groups: ClassVar[tuple[int, ...]] = (4,)
    states: ClassVar[int] = 2

    def prepared(self, direction: Direction) -> Direction:
        if direction.activations[1] != "Tanh":
            return direction
        # tanh(−x) = −tanh(x); the candidate is the last of the four gates.
        sign = np.repeat(np.array([1, 1, 1, -1], direction.recurrence.dtype), len(direction.input_bias) // 4)
        return replace(
            direction,
            weight=direction.weight * sign[:, None],
            recurrence=direction.recurrence * sign[:, None],
            input_bias=direction.input_bias * sign,
            recurrent_bias=direction.recurrent_bias * sign,
        )

    def step(self, writer: Writer, layer: Layer, direction: Direction) -> Step:
        op = writer.op
        gate, candidate, output = direction.activations
        recurrence = writer.constant(-direction.recurrence.T)
        peep = _peepholes(writer, direction)
        coupled = bool(layer.node.attributes.get_int("input_forget", 0))
        one = writer.constant(np.array(1, direction.recurrence.dtype)) if coupled else None

        def step(inputs: Sequence[ir.Value], state: State) -> State:
            hidden, cell = state
            gates = op.Sub(inputs[0], op.MatMul(hidden, recurrence))
            i, o, f, c = writer.split(gates, [layer.hidden] * 4, axis=1)
            i = writer.activate(gate, peep(0, i, cell))
            f = op.Sub(one, i) if coupled else writer.activate(gate, peep(2, f, cell))
            minus = writer.activate(candidate, c)
            minus = minus if candidate == "Tanh" else op.Neg(minus)
            cell = op.Sub(op.Mul(f, cell), op.Mul(i, minus))
            o = writer.activate(gate, peep(1, o, cell))
            return op.Mul(o, writer.activate(output, cell)), cell

        return step


def _peepholes(writer: Writer, direction: Direction) -> Any:
    """What adds the cell's part to a gate: P holds i, o and f, and is negated as R is."""
    if direction.peepholes is None:
        return lambda _which, value, _cell: value
    weights = [writer.constant(-part) for part in np.split(direction.peepholes, 3)]

    def peep(which: int, value: ir.Value, cell: ir.Value) -> ir.Value:
        result: ir.Value = writer.op.Sub(value, writer.op.Mul(cell, weights[which]))
        return result

    return peep
