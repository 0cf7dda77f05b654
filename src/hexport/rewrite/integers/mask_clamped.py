"""A mask's huge negative constant becomes a moderate one, where all it does is to reach Softmax.

scores ──► Add ──► Softmax ──► y          scores ──► Add ──► Softmax ──► y
mask · −3.4e38 ─┘                         mask · −32 ──┘

The range of the sum decides its steps: with −1e4 in it a 16-bit step is 0.15, with −3.4e38 all scores are
one number. exp(−32) is 1e-14, nothing beside the sum of a row. In a row that is masked as a whole the
scores show again, where the huge constant had made them all alike or NaN; nobody reads such a row.
A constant that reaches anything else, such as a detector's padding of boxes, is left as it is.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.integers.readers import maker, readers
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import array
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import constant

_MOVING = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand"),
    *("Flatten", "Identity", "Slice", "Tile", "Split"),
)
_PASSING = (*_MOVING, "Add", "Where", "Gather", "Concat")
_DEEPEST = 16
"""Nodes between a mask and the Softmax; more than any exporter writes."""


class MaskClamped(NodeRule):
    """Shared by the operators that bring the constant in."""

    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"Softmax"})
    huge: ClassVar[float] = -1e3
    """No score is as low as this; what is, is a mask."""
    moderate: ClassVar[float] = -32.0

    def concerns(self, node: ir.Node) -> bool:
        return self._places(node) != []

    def why_not(self) -> str:
        if not _reaches_only_softmax(self.node.outputs[0], _DEEPEST):
            return "what it gives reaches more than Softmax"
        return ""

    def replace(self, op: Any) -> Any:
        inputs = list(self.node.inputs)
        for place in self._places(self.node):
            inputs[place] = array(op, self._clamped(constant(inputs[place])))
        return getattr(op, self.op_type)(*inputs)

    def _places(self, node: ir.Node) -> list[int]:
        """Which inputs are constants with something huge and negative in them."""
        found = [constant(value) for value in node.inputs]
        return [i for i, values in enumerate(found) if values is not None and self._is_huge(values)]

    def _is_huge(self, values: np.ndarray[Any, Any]) -> bool:
        return values.dtype.kind == "f" and bool(np.any(values <= self.huge))

    def _clamped(self, values: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        assert values is not None  # _places has looked
        return np.where(values <= self.huge, self.moderate, values).astype(values.dtype)


class MaskClampedAdd(MaskClamped):
    op_type: ClassVar[str] = "Add"


class MaskClampedWhere(MaskClamped):
    op_type: ClassVar[str] = "Where"


class MaskClampedMul(MaskClamped):
    """(1 − mask) · −1e4: only where the other factor is 0 or 1."""

    op_type: ClassVar[str] = "Mul"

    def why_not(self) -> str:
        (place, *_) = self._places(self.node)
        values = np.asarray(constant(self.node.inputs[place]), np.float64)
        if np.any((values > self.huge) & (values != 0)):
            return "it multiplies by other numbers too"
        if not _is_zero_or_one(self.node.inputs[1 - place], _DEEPEST):
            return "what it multiplies is not known to be 0 or 1"
        return super().why_not()


def _reaches_only_softmax(value: ir.Value, depth: int) -> bool:
    if value.is_graph_output() or depth == 0:
        return False
    users = readers(value)
    return bool(users) and all(
        user.domain == ""
        and (
            user.op_type == "Softmax"
            or (
                user.op_type in _PASSING
                and all(_reaches_only_softmax(made, depth - 1) for made in user.outputs)
            )
        )
        for user in users
    )


def _is_zero_or_one(value: ir.Value | None, depth: int) -> bool:
    """Made from truth values, or a mask of whole numbers, which are 0 and 1 by every exporter's contract."""
    node = value.producer() if value is not None else None
    if node is None or depth == 0:
        return value is not None and value.dtype == ir.DataType.BOOL
    if maker(value, "Cast") is not None:
        given = node.inputs[0]
        whole = given is not None and given.dtype is not None and not given.dtype.is_floating_point()
        return whole or _is_zero_or_one(given, depth - 1)
    if maker(value, *_MOVING) is not None:
        return _is_zero_or_one(node.inputs[0], depth - 1)
    if maker(value, "Sub") is not None:
        return _is_ones(node.inputs[0]) and _is_zero_or_one(node.inputs[1], depth - 1)
    return False


def _is_ones(value: ir.Value | None) -> bool:
    values = constant(value)
    return values is not None and bool(np.all(values == 1))
