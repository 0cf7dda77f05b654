"""A reduction of no numbers becomes what it is by definition: the compiler fails on tensors without elements.

x[2,0,4] ──► ReduceSum(axes=1) ──► y        y = 0 everywhere; 1 for a product, −∞ for the largest of none
"""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import filled
from hexport.rewrite.rule import Purpose
from hexport.rewrite.values import fixed_shape, is_float


class EmptyReduction(NodeRule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    neutral: ClassVar[float]
    """What reducing nothing gives."""

    def why_not(self) -> str:
        given, made = fixed_shape(self.input(0)), fixed_shape(self.node.outputs[0])
        if given is None or made is None:
            return "a shape is not fixed"
        if 0 not in given:
            return "it has numbers to reduce"
        if 0 in made:
            return "what it gives has no elements either"
        if abs(self.neutral) == inf and not is_float(self.input(0)):
            return "whole numbers have no infinity"
        return ""

    def replace(self, op: Any) -> Any:
        return filled(op, self.neutral, self.required(0), fixed_shape(self.node.outputs[0]) or ())


class EmptyReduceSum(EmptyReduction):
    op_type: ClassVar[str] = "ReduceSum"
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceSum"})
    neutral: ClassVar[float] = 0.0


class EmptyReduceProd(EmptyReduction):
    op_type: ClassVar[str] = "ReduceProd"
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceProd"})
    neutral: ClassVar[float] = 1.0


class EmptyReduceMax(EmptyReduction):
    op_type: ClassVar[str] = "ReduceMax"
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMax"})
    neutral: ClassVar[float] = -inf


class EmptyReduceMin(EmptyReduction):
    op_type: ClassVar[str] = "ReduceMin"
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMin"})
    neutral: ClassVar[float] = inf
