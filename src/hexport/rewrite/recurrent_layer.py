"""An LSTM, GRU or RNN node read into plain numbers and arrays, or the reason why it cannot be unrolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.rewrite.values import constant, fixed_shape, is_float

Array = NDArray[np.floating[Any]]

# Where ONNX puts the optional inputs; X, W, R, B, sequence_lens and initial_h are the same for all three.
INITIAL_STATES = (5, 6)
_PEEPHOLES = 7

_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


class CannotUnroll(ValueError):
    """Its text says why."""


@dataclass(frozen=True)
class Direction:
    """The constants of one direction."""

    backwards: bool
    weight: Array
    """gates · hidden × features"""
    recurrence: Array
    """gates · hidden × hidden"""
    input_bias: Array
    recurrent_bias: Array
    peepholes: Array | None
    activations: tuple[str, ...]
    """ONNX operator types."""


@dataclass(frozen=True)
class Layer:
    """All that a recurrent node says."""

    node: ir.Node
    x: ir.Value
    steps: int
    """How many are computed; the others up to ``length`` give zeros."""
    length: int
    batch: int
    features: int
    hidden: int
    batch_first: bool
    clip: float
    directions: tuple[Direction, ...]

    def state(self, index: int) -> ir.Value | None:
        """initial_h, initial_c, if given."""
        return _input(self.node, INITIAL_STATES[index])


def read_layer(node: ir.Node, activations: tuple[str, ...]) -> Layer:
    """The node's layer, with default ``activations``; raises :class:`CannotUnroll`."""
    x = _input(node, 0)
    shape = fixed_shape(x)
    if x is None or shape is None or len(shape) != 3:
        raise CannotUnroll("the shape of the input is not fixed")
    if not is_float(x):
        raise CannotUnroll("the input is not known to be float32 or float16")
    batch_first = bool(node.attributes.get_int("layout", 0))
    batch, length = shape[:2] if batch_first else (shape[1], shape[0])
    recurrence = _constant_input(node, 2, "R")
    return Layer(
        node=node,
        x=x,
        steps=_steps(_input(node, 4), length),
        length=length,
        batch=batch,
        features=shape[2],
        hidden=recurrence.shape[2],
        batch_first=batch_first,
        clip=node.attributes.get_float("clip", 0.0),
        directions=_directions(node, recurrence, activations),
    )


def _directions(node: ir.Node, recurrence: Array, activations: tuple[str, ...]) -> tuple[Direction, ...]:
    backwards = _BACKWARDS[node.attributes.get_string("direction", "forward")]
    weight = _constant_input(node, 1, "W")
    rows = recurrence.shape[1]
    bias = np.zeros((len(backwards), 2 * rows), recurrence.dtype)
    if _input(node, 3) is not None:
        bias = _constant_input(node, 3, "B")
    peepholes = None if _input(node, _PEEPHOLES) is None else _constant_input(node, _PEEPHOLES, "P")
    named = _activations(node, activations, len(backwards))
    return tuple(
        Direction(
            backwards=back,
            weight=weight[i],
            recurrence=recurrence[i],
            input_bias=bias[i, :rows],
            recurrent_bias=bias[i, rows:],
            peepholes=None if peepholes is None else peepholes[i],
            activations=named[i],
        )
        for i, back in enumerate(backwards)
    )


def _activations(node: ir.Node, default: tuple[str, ...], directions: int) -> list[tuple[str, ...]]:
    given = node.attributes.get_strings("activations", default * directions)
    if unknown := [name for name in given if name.lower() not in _ACTIVATIONS]:
        raise CannotUnroll(f"the activation {unknown[0]} is none of {', '.join(_ACTIVATIONS.values())}")
    names = [_ACTIVATIONS[name.lower()] for name in given]
    return [tuple(names[i * len(default) : (i + 1) * len(default)]) for i in range(directions)]


def _steps(lengths: ir.Value | None, length: int) -> int:
    """How many steps every sequence of the batch has."""
    if lengths is None:
        return length
    given = constant(lengths)
    if given is None:
        raise CannotUnroll("the lengths of the sequences are not constant")
    found = {int(number) for number in given.flat}
    if len(found) != 1 or not 0 < min(found) <= length:
        raise CannotUnroll("the sequences of the batch differ in length, or one is empty")
    return found.pop()


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _constant_input(node: ir.Node, index: int, name: str) -> Array:
    array = constant(_input(node, index))
    if array is None:
        raise CannotUnroll(f"{name} is not constant")
    return cast(Array, array)
