"""A division by the Euclidean norm becomes LpNormalization.

x ──┬───────────────────────────────────────────► Div ──► y          x ──► LpNormalization(p=2) ──► y
    └─► ReduceL2 ──► Clip(·, 1e-12) ──► Expand ────┘

Integers have no ReduceL2; an island of fp16 between them for one number is wrong by 14 dB in one sentence
encoder. The bound only keeps zeros from 0 / 0, and so does
LpNormalization. A norm written as the root of a sum of squares is left: its parts are integers, and with
8 bits better than the whole.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.integers.along import Along, reduced, spreads_over
from hexport.rewrite.integers.readers import maker
from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import is_float, scalar


class L2NormWhole(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.INTEGER
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceL2"})
    op_type: ClassVar[str] = "Div"
    largest_bound: ClassVar[float] = 1e-6
    """Of the norm, from below: a larger one is meant to change what is divided."""

    def concerns(self, node: ir.Node) -> bool:
        return _norm(node.inputs[1]) is not None

    def why_not(self) -> str:
        found = _norm(self.node.inputs[1])
        if found is None or found[0][0] is not self.node.inputs[0]:
            return "it is the norm of something else"
        if not spreads_over(found[1], found[0]):
            return "the norm does not meet the numbers it was taken of"
        if found[2] > self.largest_bound:
            return f"the norm is bounded by {found[2]:g}, which is not next to nothing"
        return "" if is_float(found[0][0]) else "the element type is not float32 or float16"

    def replace(self, op: Any) -> Any:
        found = _norm(self.node.inputs[1])
        assert found is not None  # why_not has asked
        x, axis = found[0]
        return op.LpNormalization(x, axis=axis, p=2)


def _norm(value: ir.Value | None) -> tuple[Along, ir.Value, float] | None:
    """What the value is the norm of, the norm itself before it is spread, and its lower bound."""
    spread = maker(value, "Expand")
    bounded = spread.inputs[0] if spread is not None else value
    norm, bound = bounded, 0.0
    if (clip := maker(bounded, "Clip", "Max")) is not None and len(clip.inputs) == 2:
        constants = [number for given in clip.inputs if (number := scalar(given)) is not None]
        norm = next((given for given in clip.inputs if scalar(given) is None), None)
        bound = constants[0] if constants else float("inf")
    along = reduced(norm, "ReduceL2")
    return None if along is None or norm is None else (along, norm, bound)
