"""What the rules for LSTM, GRU and RNN share: all that does not depend on the state is one Gemm up front.

X ──► LSTM ──► Y    X ──► Reshape ──► Gemm(Wᵀ, bias) ──► Split ──► step ──► h₀ ───┬─► Concat ──► Reshape ──► Y
      GRU  ──► Y_h                                         │                ▼     │
      RNN  ──► Y_c                                         ├─────► step ──► h₁ ───┤
                                                           ⋮                ▼     ⋮
                                                           └─────► step ──► hₙ ───┴──────────► Reshape ──► Y_h

A step adds what comes from the input and what comes from the state by a subtraction, x − h·(−Rᵀ): the
compiler fuses an Add with the Sigmoid or Tanh after it into one operator that is good for 45 to 50 dB only,
and garbage when its result is split.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.any_outputs import AnyOutputs
from hexport.rewrite.naming import shortened
from hexport.rewrite.recurrent_layer import Array, CannotUnroll, Direction, Layer, read_layer

State = tuple[ir.Value, ...]
"""h of an RNN or GRU; h and c of an LSTM: batch × hidden each."""
Step = Callable[[Sequence[ir.Value], State], State]
"""From the input's part of the gates, in the rule's groups, and the state, to the next state."""


class Writer:
    """onnxscript's builder with what unrolling needs: constants, splits, clipped activations."""

    def __init__(self, op: Any, layer: Layer, opset: int) -> None:
        self.op = op
        self._layer = layer
        self._opset = opset
        # Output names are unique in a model, node names are not.
        self._name = str(next(output.name for output in layer.node.outputs if output.name))
        self._constants = 0
        self._named = 0

    def constant(self, array: Array) -> ir.Value:
        self._constants += 1
        tensor = ir.tensor(np.ascontiguousarray(array))
        value: ir.Value = self.op.initializer(tensor, name=f"{self._name}.unrolled.{self._constants}")
        return value

    def name_part(self, part: str) -> None:
        """Name what was written since the last part.

        Named after what reads it, as all that is new, a step would be called by all the steps after it: by
        another name at another length, where it is to have the same weights and ranges.
        """
        new = self.op.nodes[self._named :]
        self._named += len(new)
        for place, node in enumerate(new):
            node.name = f"{shortened(self._name)}.{part}.{place}"
            for number, value in enumerate(node.outputs):
                value.name = f"{node.name}_{number}"

    def reshape(self, value: ir.Value, *dims: int) -> ir.Value:
        result: ir.Value = self.op.Reshape(value, self.constant(np.array(dims, np.int64)))
        return result

    def split(self, value: ir.Value, sizes: Sequence[int], axis: int) -> Sequence[ir.Value]:
        if len(sizes) == 1:
            return (value,)
        if self._opset < 13:
            parts = self.op.Split(value, axis=axis, split=list(sizes), _outputs=len(sizes))
        else:
            lengths = self.constant(np.array(sizes, np.int64))
            parts = self.op.Split(value, lengths, axis=axis, _outputs=len(sizes))
        return tuple(parts)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        result: ir.Value = self.op.Concat(*values, axis=axis) if len(values) > 1 else values[0]
        return result

    def activate(self, kind: str, value: ir.Value) -> ir.Value:
        """The activation, of the clipped value if the layer clips."""
        if self._layer.clip > 0:
            dtype = self._layer.directions[0].recurrence.dtype
            bounds = [self.constant(np.array(sign * self._layer.clip, dtype)) for sign in (-1, 1)]
            value = self.op.Clip(value, *bounds)
        result: ir.Value = getattr(self.op, kind)(value)
        return result


class RecurrentUnrolled(AnyOutputs):
    """The frame of the three rules; each has its own ``step``."""

    activations: ClassVar[tuple[str, ...]]
    """The default ones."""
    groups: ClassVar[tuple[int, ...]]
    """How many gates' input parts are handed to a step together."""
    states: ClassVar[int] = 1
    max_steps: ClassVar[int] = 256
    """The compiler's time grows faster than the number of steps."""
    layer: Layer

    def why_not(self) -> str:
        try:
            self.layer = read_layer(self.node, self.activations)
        except CannotUnroll as error:
            return str(error)
        if self.layer.steps > self.max_steps:
            return f"{self.layer.steps} steps are more than {self.max_steps}"
        return ""

    def replace(self, op: Any) -> Sequence[ir.Value]:
        layer = self.layer
        writer = Writer(op, layer, self.opset)
        inputs = op.Transpose(layer.x, perm=[1, 0, 2]) if layer.batch_first else layer.x
        inputs = writer.reshape(inputs, layer.length * layer.batch, layer.features)
        first = [self._first_states(writer, layer, index) for index in range(self.states)]
        writer.name_part("begin")
        runs = [
            self._run(writer, layer, i, self.prepared(direction), inputs, tuple(state[i] for state in first))
            for i, direction in enumerate(layer.directions)
        ]
        sequence = writer.concat([outputs for outputs, _ in runs], axis=1)
        last = [
            writer.concat([writer.reshape(state[i], 1, layer.batch, layer.hidden) for _, state in runs], 0)
            for i in range(self.states)
        ]
        if layer.batch_first:
            sequence = op.Transpose(sequence, perm=[2, 0, 1, 3])
            last = [op.Transpose(state, perm=[1, 0, 2]) for state in last]
        writer.name_part("end")
        return [sequence, *last]

    def _first_states(self, writer: Writer, layer: Layer, index: int) -> list[ir.Value]:
        """The state to begin with, for each direction."""
        count, given = len(layer.directions), layer.state(index)
        if given is None:
            zeros = np.zeros((layer.batch, layer.hidden), layer.directions[0].recurrence.dtype)
            return [writer.constant(zeros)] * count
        if layer.batch_first:
            given = writer.op.Transpose(given, perm=[1, 0, 2])
        parts = writer.split(given, [1] * count, axis=0)
        return [writer.reshape(part, layer.batch, layer.hidden) for part in parts]

    def _run(
        self, writer: Writer, layer: Layer, number: int, direction: Direction, inputs: ir.Value, state: State
    ) -> tuple[ir.Value, State]:
        """One direction: its outputs, length × 1 × batch × hidden, and its last state."""
        weight, bias = writer.constant(direction.weight.T), writer.constant(self.input_bias(direction))
        gates = writer.split(
            writer.op.Gemm(inputs, weight, bias), [size * layer.hidden for size in self.groups], axis=1
        )
        pieces = [writer.split(group, [layer.batch] * layer.length, axis=0) for group in gates]
        step = self.step(writer, layer, direction)
        outputs: list[ir.Value] = []
        writer.name_part(f"{number}.inputs")
        order = range(layer.steps)
        for done, moment in enumerate(reversed(order) if direction.backwards else order):
            state = step([group[moment] for group in pieces], state)
            writer.name_part(f"{number}.step{done}")
            outputs.append(state[0])
        if direction.backwards:
            outputs.reverse()
        if missing := layer.length - layer.steps:
            padding = np.zeros((missing * layer.batch, layer.hidden), direction.recurrence.dtype)
            outputs.append(writer.constant(padding))
        sequence = writer.reshape(writer.concat(outputs, 0), layer.length, 1, layer.batch, layer.hidden)
        writer.name_part(f"{number}.outputs")
        return sequence, state

    def prepared(self, direction: Direction) -> Direction:
        """The constants as the step wants them."""
        return direction

    def input_bias(self, direction: Direction) -> Array:
        """What is added to the input's part of the gates."""
        total: Array = direction.input_bias + direction.recurrent_bias
        return total

    @abstractmethod
    def step(self, writer: Writer, layer: Layer, direction: Direction) -> Step:
        """The cell, its constants written."""
