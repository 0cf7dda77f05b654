"""ConvTranspose with a border that no input reaches: compute what is reached, and pad the rest.

x ──► ConvTranspose(output_padding | output_shape) ──► y

x ──► ConvTranspose(fewer pads) ──► y                                where the padding is only cut less
x ──► ConvTranspose ──► Pad(0) ──► Add(bias) ──► y                   where it goes past the data

The compiler leaves such a border as it finds it in memory: right in a fresh process, wrong in a used one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import fixed_shape, is_float


@dataclass(frozen=True)
class _Form:
    """The same without output_shape, auto_pad and output_padding."""

    strides: list[int]
    dilations: list[int]
    pads: list[int]
    border: list[int]
    """Zeros to add after the data, a number an axis."""


class ConvTransposeCovered(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"ConvTranspose"})

    def pattern(self, op: Any, x: Any, w: Any) -> Any:
        return op.ConvTranspose(x, w, _allow_other_inputs=True, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, w: ir.Value, y: ir.Value) -> MatchResult:
        result = MatchResult()
        node = context.root
        attributes = node.attributes
        shape, kernel, out = fixed_shape(x), fixed_shape(w), fixed_shape(y)
        if shape is None or kernel is None or out is None:
            return result.fail("the shapes are not fixed", node)
        if not is_float(x):
            return result.fail("the element type is not float", x)
        if "output_shape" not in attributes and not any(attributes.get_ints("output_padding", [])):
            return result.fail("neither output_shape nor output_padding is given", node)
        form = _form(attributes, shape, kernel, out)
        if form is None:
            return result.fail("the output is larger than the standard allows", node)
        self._form, self._group = form, attributes.get_int("group", 1)
        self._bias = node.inputs[2] if len(node.inputs) > 2 else None
        return result

    def rewrite(self, op: Any, x: ir.Value, w: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        form, bias = self._form, self._bias
        inputs = [x, w] if bias is None or any(form.border) else [x, w, bias]
        made = op.ConvTranspose(
            *inputs, strides=form.strides, dilations=form.dilations, pads=form.pads, group=self._group
        )
        if not any(form.border):
            return made
        assert x.dtype is not None
        rank = len(form.border)
        zeros = op.Constant(value=ir.tensor(np.array([0] * (rank + 4) + form.border, np.int64)))
        bordered = op.Pad(made, zeros, op.Constant(value=ir.tensor(np.zeros((), x.dtype.numpy()))))
        if bias is None:
            return bordered
        along = op.Constant(value=ir.tensor(np.array([1, -1] + [1] * rank, np.int64)))
        return op.Add(bordered, op.Reshape(bias, along))


def _form(
    attributes: Any, shape: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...]
) -> _Form | None:
    rank = len(shape) - 2
    strides = list(attributes.get_ints("strides", [1] * rank))
    dilations = list(attributes.get_ints("dilations", [1] * rank))
    given = list(attributes.get_ints("pads", [0] * 2 * rank))
    lower = attributes.get_string("auto_pad", "NOTSET") != "SAME_UPPER"
    extra = attributes.get_ints("output_padding", [0] * rank)
    begins, ends = [], []
    for axis in range(rank):
        reach = (shape[axis + 2] - 1) * strides[axis] + dilations[axis] * (kernel[axis + 2] - 1) + 1
        begin = given[axis]
        if "output_shape" in attributes:
            total = max(0, reach + extra[axis] - out[axis + 2])
            begin = total - total // 2 if lower else total // 2
        begins.append(begin)
        ends.append(reach - begin - out[axis + 2])
    if any(end < 0 and -end >= stride for end, stride in zip(ends, strides, strict=True)):
        return None
    pads = [*begins, *(max(end, 0) for end in ends)]
    return _Form(strides, dilations, pads, [max(-end, 0) for end in ends])
