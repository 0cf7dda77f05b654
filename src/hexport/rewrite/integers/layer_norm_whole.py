"""A layer norm that was written out becomes LayerNormalization; what follows it may go in later.

x ──┬──────────────► Sub ──┬───────────────────────────────────► Div ──► y
    └─► ReduceMean ───┘    └─► Mul ──► ReduceMean ──► Add ──► Sqrt ─┘

x ──► LayerNormalization(·, 1) ──► y

Squares have twice the range of what is squared, and small variances fall into the first step of an integer.
Also with mean(x²) − mean(x)² for the variance, with the reciprocal of the root, and, between two
Transposes, along another axis than the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.integers.along import Along, mean_of, spreads_over, unshaped
from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, numpy_type, transpose
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import constant, fixed_shape, is_float, scalar

_FIRST_OPSET_WITH_LAYER_NORM = 17


@dataclass(frozen=True)
class Norm:
    """(x − mean) / sqrt(variance + ``epsilon``) along an axis, times ``gain``."""

    along: Along
    epsilon: float
    gain: ir.Value | None = None


class LayerNormWhole(NodeRule):
    """Shared by the two operators that may be last."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMean", "Sqrt", "Pow"})

    def concerns(self, node: ir.Node) -> bool:
        return _norm_ending_at(node) is not None

    def why_not(self) -> str:
        if self.opset < _FIRST_OPSET_WITH_LAYER_NORM:
            return f"opset {self.opset} has no LayerNormalization"
        found = _norm_ending_at(self.node)
        return "" if found and is_float(found.along[0]) else "the element type is not float32 or float16"

    def replace(self, op: Any) -> Any:
        found = _norm_ending_at(self.node)
        assert found is not None  # why_not has asked
        x, axis = found.along
        shape = fixed_shape(x) or ()
        one = np.ones(shape[axis], numpy_type(x))
        swap = list(range(len(shape)))
        swap[axis], swap[-1] = swap[-1], swap[axis]
        made = op.LayerNormalization(transpose(op, x, swap), array(op, one), axis=-1, epsilon=found.epsilon)
        back = transpose(op, made, swap)
        return back if found.gain is None else op.Mul(back, found.gain)


class LayerNormFromDiv(LayerNormWhole):
    op_type: ClassVar[str] = "Div"


class LayerNormFromMul(LayerNormWhole):
    op_type: ClassVar[str] = "Mul"


def _norm_ending_at(node: ir.Node) -> Norm | None:
    for deviation, root, gain in _quotients(node):
        along, under = _centred(deviation), _under_root(root)
        added = maker(under, "Add")
        if along is None or added is None or not spreads_over(root, along):
            continue
        for variance, other in (added.inputs, added.inputs[::-1]):
            epsilon = scalar(other)
            if epsilon is not None and _variance_of(variance) == along:
                return Norm(along, epsilon, gain)
    return None


def _quotients(node: ir.Node) -> list[tuple[ir.Value | None, ir.Value | None, ir.Value | None]]:
    """What may be (deviation, root, gain), by the form of the last operator."""
    one, other = node.inputs
    if node.op_type == "Div":
        return [(one, other, None)]
    found: list[tuple[ir.Value | None, ir.Value | None, ir.Value | None]] = []
    for deviation, rest in ((one, other), (other, one)):
        if (inverse := maker(rest, "Reciprocal")) is not None:
            found.append((deviation, inverse.inputs[0], None))
        product = maker(rest, "Mul")
        for a, b in (product.inputs, product.inputs[::-1]) if product is not None else ():
            inverse = maker(a, "Reciprocal")
            if inverse is not None and constant(b) is not None:
                found.append((deviation, inverse.inputs[0], b))
    return found


def _under_root(value: ir.Value | None) -> ir.Value | None:
    if (node := maker(value, "Sqrt")) is not None:
        return node.inputs[0]
    node = maker(value, "Pow")
    return node.inputs[0] if node is not None and scalar(node.inputs[1]) == 0.5 else None


def _variance_of(value: ir.Value | None) -> Along | None:
    """What the value is the variance of."""
    mean = mean_of(value)
    if mean is not None:
        centred = _centred(_squared(mean[0]))
        return centred if centred is not None and centred[1] == mean[1] else None
    floor = maker(unshaped(value), "Max", "Relu")
    inner = unshaped(value) if floor is None else next((v for v in floor.inputs if scalar(v) != 0), None)
    difference = maker(inner, "Sub")
    if difference is None:
        return None
    of_squares, mean = mean_of(difference.inputs[0]), mean_of(_squared(difference.inputs[1]))
    if of_squares is None or mean is None or of_squares[1] != mean[1]:
        return None
    return mean if _squared(of_squares[0]) is mean[0] else None


def _squared(value: ir.Value | None) -> ir.Value | None:
    if (node := maker(value, "Mul")) is not None:
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None
    node = maker(value, "Pow")
    return node.inputs[0] if node is not None and scalar(node.inputs[1]) == 2 else None


def _centred(value: ir.Value | None) -> Along | None:
    """The x and the axis of x − mean(x)."""
    node = maker(value, "Sub")
    along = mean_of(node.inputs[1]) if node is not None else None
    if node is None or along is None or along[0] is not node.inputs[0]:
        return None
    return along if spreads_over(node.inputs[1], along) else None
