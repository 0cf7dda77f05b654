"""RNN step by step: the backend has no such operator.

           x ──► Sub ──► Tanh ──► h'
                  ▲
h ──► MatMul(−Rᵀ)─┘

for each step, after one Gemm over all of them (see ``recurrent``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.recurrent import RecurrentUnrolled, State, Step, Writer
from hexport.rewrite.recurrent_layer import Direction, Layer


class RnnUnrolled(RecurrentUnrolled):
    cures: ClassVar[frozenset[str]] = frozenset({"RNN"})
    op_type: ClassVar[str] = "RNN"
    activations: ClassVar[tuple[str, ...]] = ("Tanh",)
    groups: ClassVar[tuple[int, ...]] = (1,)

    def step(self, writer: Writer, layer: Layer, direction: Direction) -> Step:  # noqa: ARG002
        recurrence = writer.constant(-direction.recurrence.T)

        def step(inputs: Sequence[ir.Value], state: State) -> State:
            product = writer.op.MatMul(state[0], recurrence)
            return (writer.activate(direction.activations[0], writer.op.Sub(inputs[0], product)),)

        return step
