"""A convolution's auto_pad becomes the pads it stands for, so that what is summed can be told.

x ──► Conv(auto_pad = SAME_UPPER) ──► y          x ──► Conv(pads = …) ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import fixed_shape


class ConvPads(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Conv"})
    op_type: ClassVar[str] = "Conv"

    def concerns(self, node: ir.Node) -> bool:
        return str(node.attributes.get_string("auto_pad", "NOTSET")) != "NOTSET"

    def why_not(self) -> str:
        if fixed_shape(self.required(0)) is None or fixed_shape(self.required(1)) is None:
            return "the input's shape is not known"
        return ""

    def replace(self, op: Any) -> Any:
        attributes = {name: value for name, value in self.node.attributes.items() if name != "auto_pad"}
        attributes["pads"] = ir.AttrInt64s("pads", self._pads())
        return op.Conv(*self.node.inputs, **attributes)

    def _pads(self) -> list[int]:
        """Of each axis, first all beginnings and then all ends."""
        mode = self.text_attribute("auto_pad", "NOTSET")
        sizes, kernel = (fixed_shape(self.required(i)) or () for i in (0, 1))
        rank = len(kernel) - 2
        if mode == "VALID":
            return [0] * (2 * rank)
        strides = self.node.attributes.get_ints("strides", [1] * rank)
        dilations = self.node.attributes.get_ints("dilations", [1] * rank)
        before, after = [], []
        for size, taps, stride, dilation in zip(sizes[2:], kernel[2:], strides, dilations, strict=True):
            count = -(-size // stride)
            total = max((count - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before.append(less if mode == "SAME_UPPER" else more)
            after.append(more if mode == "SAME_UPPER" else less)
        return before + after
