"""The encoding of every activation tensor, from what was seen of it and what the operators allow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from hexport.quantization.clipping import METHODS
from hexport.quantization.encoding import Encoding, Floats, QType, asymmetric, symmetric
from hexport.quantization.histogram import Histogram
from hexport.quantization.roles import kind_of
from hexport.rewrite.values import constant

_MOSTLY_LOW = 0.5
"""Below this a bounded operator's result uses too little of 8 bits in the bounds' own range."""


_PICKY = ("Sigmoid", "HardSigmoid", "Tanh")
"""Whose 16-bit results are wrong at a graph's end in any encoding but one. The others reach 1 exactly."""

GivenRange = tuple[float, float, QType | None]
"""What the user says of a tensor: its ends, and in which type it is so; None for every type."""


class Activations:
    """Answers: how is this tensor written in that type?"""

    def __init__(self, model: ir.Model, histograms: Mapping[str, Histogram], method: str = "mse") -> None:
        self._histograms = histograms
        self._method = METHODS[method]
        self._same = _same_encoding(model)
        self._bounds = _bounds(model)
        self._picky = {str(n.outputs[0].name) for n in model.graph if n.op_type in _PICKY}
        self._tables = _tables(model)
        self._found: dict[tuple[str, QType], Encoding] = {}
        self.overrides: dict[str, GivenRange] = {}

    def encoding(self, name: str, type_: QType) -> Encoding:
        """Of the tensor, and of every other that shares its encoding."""
        root = self._same.get(name, name)
        if (root, type_) not in self._found:
            self._found[root, type_] = self._make(root, type_)
        return self._found[root, type_]

    def knows(self, name: str) -> bool:
        return self._same.get(name, name) in self._histograms

    def _make(self, name: str, type_: QType) -> Encoding:
        if name in self.overrides and self.overrides[name][2] in (None, type_):
            low, high, _ = self.overrides[name]
            if type_.signed:
                return symmetric(max(abs(low), abs(high)), type_)
            return asymmetric(low, high, type_)
        if name in self._tables:
            return encode_constant(self._tables[name], type_)
        histogram = self._histograms[name]
        bounds = self._bounds.get(name)
        if bounds is not None and (type_ is QType.U16 or histogram.high > _MOSTLY_LOW * bounds[1]):
            picky = type_ is QType.U16 and name in self._picky
            return _canonical(bounds, type_) if picky else asymmetric(*bounds, type_)
        low, high = self._method(histogram, type_)
        if type_.signed:
            return symmetric(max(abs(low), abs(high)), type_)
        return asymmetric(low, high, type_)


def encode_constant(array: Floats, type_: QType) -> Encoding:
    """A constant operand needs no calibration: it is what it is."""
    if type_.signed:
        return symmetric(float(np.abs(array).max(initial=0)), type_)
    return asymmetric(float(array.min(initial=0)), float(array.max(initial=0)), type_)


def _canonical(bounds: tuple[float, float], type_: QType) -> Encoding:
    """A power of two as the scale: at 16 bits the HTP computes wrongly with any other at a graph's end."""
    steps = type_.steps + 1
    scale = np.float32((bounds[1] - bounds[0]) / steps)
    return Encoding(type_, np.asarray(scale), type_.low + (0 if bounds[0] == 0 else steps // 2))


def _bounds(model: ir.Model) -> dict[str, tuple[float, float]]:
    found = {}
    for node in model.graph:
        known = kind_of(node)
        if known is not None and known.range:
            found[str(node.outputs[0].name)] = (known.range[0], known.range[1])
    return found


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
