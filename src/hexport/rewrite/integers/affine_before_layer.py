"""What multiplies and shifts the channels of a layer's input goes into the layer's weights and bias.

x ──► Mul(·, s) ──► Add(·, t) ──► Conv(w, b) ──► y          x ──► Conv(s·w, b + w·t) ──► y

A convolution that pads with zeros cannot take what is added: there the border would be t and not 0. Then
the factor alone goes into the weights, and one addition of t/s is left.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.model.axes import along
from hexport.rewrite.integers.affine import Affine, affine_of
from hexport.rewrite.integers.layers import Layer, layer_of
from hexport.rewrite.integers.readers import only_for
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array, numpy_type
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import constant, fixed_shape


class AffineBeforeLayer(NodeRule):
    """Shared by the operators that have weights."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER
    most_uneven: ClassVar[float] = 16.0
    """The largest factor beside the smallest: input channels share the scales of the weights."""
    _layer: Layer
    _affine: Affine

    def concerns(self, node: ir.Node) -> bool:
        value = node.inputs[0] if node.inputs else None
        made_by = value.producer() if value is not None else None
        axis = 1 if self.op_type in ("Conv", "ConvTranspose") else -1
        return made_by is not None and affine_of(made_by, axis) is not None

    def why_not(self) -> str:
        layer = layer_of(self.node)
        if layer is None:
            return "its weights or bias are not constant, or it scales them itself"
        steps = _steps(layer)
        if not steps:
            return "what is before it does not treat every channel alike, or is used elsewhere too"
        whole = steps[0]
        for earlier in steps[1:]:
            whole = whole.after(earlier)
        if _unevenness(whole.factor) > self.most_uneven:
            return "the factors of the channels differ too much to share a scale with the weights"
        if np.any(whole.offset) and not _takes_shift(layer) and len(steps) == 1:
            return "what is added would have to be added to the padding too, or there is no bias"
        self._layer, self._affine = layer, whole
        return ""

    def replace(self, op: Any) -> Any:
        affine, value = self._affine, self._affine.value
        if not np.any(affine.offset) or _takes_shift(self._layer):
            return self._layer.scaled_before(affine.factor, affine.offset).build(op, value)
        rank = len(fixed_shape(value) or ())
        shift = np.asarray(affine.offset / affine.factor, numpy_type(value))
        if shift.ndim:
            shift = shift.reshape(along(self._layer.axis, rank))
        moved = op.Add(value, array(op, shift))
        # Not inferred yet, and the next rule may ask.
        moved.dtype, moved.shape = value.dtype, value.shape
        return self._layer.scaled_before(affine.factor, np.zeros(())).build(op, moved)


class AffineBeforeConv(AffineBeforeLayer):
    op_type: ClassVar[str] = "Conv"
    cures: ClassVar[frozenset[str]] = frozenset({"Mul", "Add", "Sub", "Div", "BatchNormalization"})


class AffineBeforeConvTranspose(AffineBeforeLayer):
    op_type: ClassVar[str] = "ConvTranspose"
    cures: ClassVar[frozenset[str]] = frozenset({"Mul", "Div"})


class AffineBeforeGemm(AffineBeforeLayer):
    op_type: ClassVar[str] = "Gemm"
    cures: ClassVar[frozenset[str]] = frozenset({"Mul", "Add", "Sub", "Div", "BatchNormalization"})


class AffineBeforeMatMul(AffineBeforeLayer):
    op_type: ClassVar[str] = "MatMul"
    cures: ClassVar[frozenset[str]] = frozenset({"Mul", "Div"})


def _steps(layer: Layer) -> list[Affine]:
    """The affine nodes before the layer that serve it alone, the nearest first; two at most."""
    found: list[Affine] = []
    value, user = layer.value, layer.node
    while len(found) < 2:
        node = value.producer()
        step = affine_of(node, layer.axis) if node is not None and only_for(value, user) else None
        if node is None or step is None or constant(step.value) is not None:
            break
        found.append(step)
        value, user = step.value, node
    return found


def _unevenness(factor: np.ndarray[Any, Any]) -> float:
    sizes = np.abs(factor)
    return float(sizes.max() / sizes.min()) if sizes.min() > 0 else np.inf


def _takes_shift(layer: Layer) -> bool:
    """Whether a shift of the input is the same everywhere in the result, and a bias can hold it."""
    if layer.node.op_type == "Conv":
        attributes = layer.node.attributes
        unpadded = attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        return unpadded and not any(attributes.get_ints("pads", []))
    return layer.node.op_type == "Gemm"
