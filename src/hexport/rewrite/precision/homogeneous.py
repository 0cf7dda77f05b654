"""Tracing a value back through homogeneous operators, so that a scale can be carried through them.

When the sources of such a path are divided by m, its end is divided by m to the power of ``degree``. A
spectrogram is the usual case: squares, sums, a mel matrix. One scale, chosen from the numbers themselves,
can then be put before the squares and taken back after the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import onnx_ir as ir

from hexport.rewrite.precision.fp16 import LARGEST, MOVES, squared
from hexport.rewrite.precision.reducing import terms
from hexport.rewrite.values import constant, fixed_shape, scalar

_JOINS = frozenset({"Add", "Sub", "Concat", "Max", "Min"})
_KEEP_SIZE = frozenset({"Relu", "Abs", "Neg", "ReduceMean", "ReduceMax"})
_Known = dict[ir.Value, "Path | None"]


@dataclass(frozen=True)
class Path:
    """How the end of a path depends on its sources."""

    sources: tuple[ir.Value, ...]
    degree: float
    """2 for a power, 1 for a magnitude."""
    gain: float
    """The end is at most this times the largest source to the power of ``degree``."""
    room: float
    """Sources of at most 2 to the power of ``room`` overflow nothing on the way."""

    def onward(self, degree: float, gain: float) -> Path:
        # Half of what fp16 holds: sums are rounded up on the way.
        return Path(self.sources, degree, gain, min(self.room, log2(LARGEST / 2 / gain) / degree))


def trace_power(value: ir.Value | None) -> Path | None:
    """From ``value`` back to what is squared; None if anything else goes in."""
    return _Tracer(linear=False).trace(value)


def trace_linear(value: ir.Value) -> Path:
    """From ``value`` back through linear operators as far as they go."""
    path = _Tracer(linear=True).trace(value)
    return path or _start(value)


def _start(value: ir.Value) -> Path:
    return Path((value,), 1, 1.0, np.inf).onward(1, 1.0)


class _Tracer:
    """One walk; what was seen is kept, since filter banks share their stages."""

    def __init__(self, *, linear: bool) -> None:
        self.linear = linear
        self.known: _Known = {}

    def trace(self, value: ir.Value | None) -> Path | None:
        if value is None or constant(value) is not None:
            return None
        if value not in self.known:
            path = self._step(value)
            self.known[value] = _start(value) if path is None and self.linear else path
        return self.known[value]

    def _step(self, value: ir.Value) -> Path | None:
        if not self.linear and (base := squared(value)) is not None:
            inner = self.trace(base) or _start(base)
            return inner.onward(2 * inner.degree, inner.gain**2)
        node = value.producer()
        if node is None or node.domain != "" or len(node.outputs) != 1 or not node.inputs:
            return None
        if node.op_type in _JOINS:
            return self._joined(node)
        if not self.linear and node.op_type in ("ReduceSumSquare", "ReduceL2"):
            power = _start(_first(node)).onward(2, float(_terms(node)))
            return power if node.op_type == "ReduceSumSquare" else power.onward(1, power.gain**0.5)
        path = self.trace(node.inputs[0])
        if path is None:
            return None
        if not self.linear and node.op_type == "Sqrt":
            return path.onward(path.degree / 2, path.gain**0.5)
        factor = None if self.linear and node.op_type in ("Relu", "Abs", "ReduceMax") else _factor(node)
        return None if factor is None else path.onward(path.degree, max(path.gain * factor, 1e-30))

    def _joined(self, node: ir.Node) -> Path | None:
        if self.linear and node.op_type in ("Max", "Min"):
            return None
        traced = [self.trace(value) for value in node.inputs]
        paths = [path for path in traced if path is not None]
        if len(paths) != len(traced) or len({path.degree for path in paths}) != 1:
            return None
        gains = [path.gain for path in paths]
        sources = tuple(dict.fromkeys(source for path in paths for source in path.sources))
        joined = Path(sources, paths[0].degree, max(gains), min(path.room for path in paths))
        return joined.onward(joined.degree, sum(gains) if node.op_type in ("Add", "Sub") else max(gains))


def _factor(node: ir.Node) -> float | None:
    """By how much a node can make numbers larger; None if it is not homogeneous."""
    if node.op_type in MOVES or node.op_type in _KEEP_SIZE:
        return 1.0
    if node.op_type == "ReduceSum":
        return float(_terms(node))
    if node.op_type == "Pad":
        return 1.0 if len(node.inputs) < 3 or node.inputs[2] is None or scalar(node.inputs[2]) == 0 else None
    weight = constant(node.inputs[1]) if len(node.inputs) == 2 else None
    if weight is None or weight.dtype.kind != "f":
        return None
    size = np.abs(weight.astype(np.float64))
    match node.op_type:
        case "Mul":
            return float(size.max())
        case "Div" if size.min() > 0:
            return 1 / float(size.min())
        case "MatMul" if size.ndim >= 2:
            return float(size.sum(axis=-2).max())
        case "Conv":
            return float(size.reshape(len(size), -1).sum(axis=1).max())
    return None


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _terms(node: ir.Node) -> int:
    """How many numbers one result of a reduction is made of; all of them when the axes are not known."""
    known = terms(node)
    return known if known is not None else int(np.prod(fixed_shape(node.inputs[0]) or (1,)))


def rebuild(op: Any, value: ir.Value, replaced: dict[ir.Value, Any]) -> Any:
    """The same path anew upon other sources, which ``replaced`` names; what is made is added to it."""
    if value in replaced:
        return replaced[value]
    node = value.producer()
    if node is None or constant(value) is not None:
        return value
    inputs = [None if old is None else rebuild(op, old, replaced) for old in node.inputs]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        replaced[value] = value
        return value
    made = getattr(op, node.op_type)(*inputs, **dict(node.attributes))
    made.dtype, made.shape = value.dtype, value.shape
    replaced[value] = made
    return made
