"""A Euclidean norm taken of numbers that were divided by the largest of them.

x ──► ReduceL2 ──► y          m = Max(ReduceMax|x|, 2⁻¹⁴)
                              x ──► ÷ m ──► a² ──► ReduceMean ──► Sqrt ──► · √N ──► · m ──► y

The squares are at most 1 and so is their mean.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import SMALLEST_NORMAL, number
from hexport.rewrite.precision.reducing import axes_of, opset_of, reduce, squeeze, terms
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class L2Scaled(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceL2"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.ReduceL2(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        self._node = context.root
        return norm_fits(context.root, x)

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return scaled_norm(op, self._node, x)


def norm_fits(reduction: ir.Node, x: ir.Value) -> MatchResult:
    """Whether ``scaled_norm`` can replace the norm of ``x`` that a reduction takes part in."""
    result = MatchResult()
    if not is_float(x):
        return result.fail("its element type is not a float that the NPU has", x)
    if not terms(reduction):
        return result.fail("the number of terms in the sum is not known", x)
    return result


def scaled_norm(op: Any, reduction: ir.Node, x: ir.Value) -> Any:
    """The norm of ``x`` over the axes of ``reduction``."""
    opset, axes = opset_of(reduction), axes_of(reduction) or ()
    largest = reduce(op, "ReduceMax", op.Abs(x), axes, opset)
    m = op.Max(largest, number(op, x, SMALLEST_NORMAL))
    ratio = op.Div(x, m)
    mean = reduce(op, "ReduceMean", op.Mul(ratio, ratio), axes, opset)
    norm = op.Mul(op.Mul(op.Sqrt(mean), number(op, x, (terms(reduction) or 1) ** 0.5)), m)
    return norm if reduction.attributes.get_int("keepdims", 1) else squeeze(op, norm, axes, opset)
