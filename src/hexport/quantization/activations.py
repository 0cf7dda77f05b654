"""The encoding of every activation tensor, from what was seen of it and what the operators allow."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
import onnx_ir as ir

from hexport import facts
from hexport.quantization.bounds import bounds_of
from hexport.quantization.clipping import METHODS, Range
from hexport.quantization.encoding import Encoding, Floats, QType, asymmetric, symmetric
from hexport.quantization.histogram import Histogram
from hexport.quantization.roles import kind_of
from hexport.quantization.unseen import range_with_unseen, scores_of
from hexport.rewrite.values import constant

_ANYTHING: Range = (-inf, inf)
_MOSTLY_LOW = 0.5
"""Below this a bounded operator's result uses too little of 8 bits in the bounds' own range."""
ROOM = 2.0
"""How much wider than what was seen 16 bits are spread: a bit coarser, and unseen inputs are not cut off."""

GivenRange = tuple[float, float, QType | None]
"""What the user says of a tensor: its ends, and in which type it is so; None for every type."""


class Activations:
    """Answers: how is this tensor written in that type?"""

    def __init__(
        self, model: ir.Model, histograms: Mapping[str, Histogram], method: str = "mse", room: float = ROOM
    ) -> None:
        self.histograms, self._room = histograms, room
        self._method = METHODS[method]
        self._same = _same_encoding(model)
        self._bounded = _bounded(model)
        self._bounds = bounds_of(model)
        self._tables = _tables(model)
        self._scores = scores_of(model, histograms)
        self._found: dict[tuple[str, QType], Encoding] = {}
        self.overrides: dict[str, GivenRange] = {}

    def encoding(self, name: str, type_: QType) -> Encoding:
        """Of the tensor, and of every other that shares its encoding."""
        root = self._same.get(name, name)
        if (root, type_) not in self._found:
            self._found[root, type_] = self._make(root, type_)
        return self._found[root, type_]

    def knows(self, name: str) -> bool:
        return self._same.get(name, name) in self.histograms

    def is_open_score(self, name: str) -> bool:
        """Whether it is one of few numbers at the model's end, which nothing but its encoding bounds."""
        root = self._same.get(name, name)
        return root in self._scores and inf in map(abs, self._bounds.get(root, _ANYTHING))

    def _make(self, name: str, type_: QType) -> Encoding:
        if name in self.overrides and self.overrides[name][2] in (None, type_):
            low, high, _ = self.overrides[name]
            if type_.signed:
                return symmetric(max(abs(low), abs(high)), type_)
            return asymmetric(low, high, type_)
        if name in self._tables:
            return encode_constant(self._tables[name], type_)
        histogram = self.histograms[name]
        op = self._bounded.get(name)
        if op is not None and (type_ is QType.U16 or histogram.high > _MOSTLY_LOW * op.range[1]):
            return _in_bounds(op, type_)
        low, high = self._range(name, histogram, type_)
        if type_.signed:
            return symmetric(max(abs(low), abs(high)), type_)
        return asymmetric(low, high, type_)

    def _range(self, name: str, histogram: Histogram, type_: QType) -> Range:
        """What was seen and room for what was not, but no further than anything can be."""
        if type_.bits == 8 and name in self._scores:
            seen, wider = (histogram.low, histogram.high), range_with_unseen(histogram, type_)
        else:
            seen = self._method(histogram, type_)
            wider = (seen[0] * self._room, seen[1] * self._room) if type_.bits == 16 else seen
        least, most = self._bounds.get(name, _ANYTHING)
        return max(wider[0], min(seen[0], least)), min(wider[1], max(seen[1], most))


def encode_constant(array: Floats, type_: QType) -> Encoding:
    """A constant operand needs no calibration: it is what it is."""
    if type_.signed:
        return symmetric(float(np.abs(array).max(initial=0)), type_)
    return asymmetric(float(array.min(initial=0)), float(array.max(initial=0)), type_)


def _in_bounds(op: facts.IntegerOp, type_: QType) -> Encoding:
    """All that the operator's result can be; a bound of 1 is reached exactly where the HTP allows it."""
    low, high = op.range
    if type_.name.lower() not in op.power_of_two:
        return asymmetric(low, high, type_)
    steps = type_.steps + 1
    scale = np.asarray((high - low) / steps, np.float32)
    return Encoding(type_, scale, type_.low + (0 if low == 0 else steps // 2))


def _bounded(model: ir.Model) -> dict[str, facts.IntegerOp]:
    """Tensors that operators with a bounded result make."""
    known = ((node, kind_of(node)) for node in model.graph)
    return {str(node.outputs[0].name): op for node, op in known if op is not None and op.range}


def _tables(model: ir.Model) -> dict[str, Floats]:
    """What is looked up in a constant -> the constant: the two must be written alike."""
    found = {}
    for node in model.graph:
        table = constant(node.inputs[0]) if node.op_type == "Gather" and kind_of(node) is not None else None
        if table is not None:
            found[str(node.outputs[0].name)] = table
    return found


def _same_encoding(model: ir.Model) -> dict[str, str]:
    """Every tensor that is moved from another -> the one it came from."""
    roots: dict[str, str] = {}
    for node in model.graph:
        known = kind_of(node)
        if known is None or known.kind != "moving" or node.op_type in ("Concat", "Pad"):
            continue
        source = node.inputs[0]
        if source is None or constant(source) is not None:
            continue
        for output in node.outputs:
            roots[str(output.name)] = roots.get(str(source.name), str(source.name))
    return roots
