"""Front ends that no integers carry: from a power or magnitude to the Log that is taken of it.

x ──► STFT ──► Mul(·,·) ──► mel filters ──► Max(floor) ──► Log
               └──────────────── in fp16 ────────────────┘

A power spectrum spans ten orders of magnitude, and the Log makes its smallest parts count as much as its
largest: steps of one size cannot do that.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from hexport.quantization.roles import weight_of
from hexport.rewrite.values import constant

REASON = "between a power and its Log: rounding by steps of one size loses the small parts"
_BETWEEN = frozenset(
    {
        *("Add", "Mul", "Div", "Sub", "Neg", "Max", "Min", "Clip", "Sqrt", "Where", "Sum", "Exp", "Relu"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "Reciprocal", "Cast", "Identity", "Reshape", "Transpose"),
        *("Squeeze", "Unsqueeze", "Slice", "Concat", "Pad", "Gather", "Flatten", "Split", "Expand"),
    }
)
"""Operators between a power and a Log."""
_MAKING_MAGNITUDES = frozenset({"Abs", "ReduceSumSquare", "ReduceL2", "Pow"})


def front_ends(model: ir.Model) -> set[str]:
    """The names of the nodes in such regions, the Log included."""
    found: set[str] = set()
    for node in model.graph:
        if node.op_type == "Log":
            found |= _region(node)
    return found


def _region(log: ir.Node) -> set[str]:
    """All that leads from magnitudes to this Log; empty when it is not a Log of magnitudes."""
    region, waiting, begins = {str(log.name)}, [log], False
    while waiting:
        for value in waiting.pop().inputs:
            producer = value.producer() if value is not None else None
            if producer is None or str(producer.name) in region:
                continue
            if _makes_magnitude(producer):
                begins = True
                region.add(str(producer.name))
            elif producer.op_type in _BETWEEN or _filters(producer):
                region.add(str(producer.name))
                waiting.append(producer)
    return region if begins else set()


def _makes_magnitude(node: ir.Node) -> bool:
    same = node.op_type == "Mul" and node.inputs[0] is node.inputs[1]
    return same or node.op_type in _MAKING_MAGNITUDES


def _filters(node: ir.Node) -> bool:
    """A filter bank: weights of one sign, summing powers into powers."""
    weight = weight_of(node)
    array = constant(node.inputs[weight.index]) if weight is not None else None
    return array is not None and float(np.min(array.astype(np.float64), initial=0)) >= 0
