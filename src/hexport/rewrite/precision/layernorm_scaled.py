"""A sum that is divided by its length becomes a mean, which the HTP computes without overflow.

v ──► ReduceSum ──► Mul(·, c) ──► y          v ──► ReduceMean ──► Mul(·, c·N) ──► y

Hand-made layer norms sum a few hundred squares, and 65504 is soon passed, before they divide. ReduceMean
holds as long as the mean itself does. Divisions by a constant are taken in the same way.
"""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import number
from hexport.rewrite.precision.reducing import like_reduction, terms
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import fixed_shape, is_float, scalar


class SumToMean(Rule):
    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceSum"})
    largest_rest: ClassVar[float] = 16.0
    """A factor that leaves more than this of a mean hardly divides: the sum is wanted as a sum."""

    def pattern(self, op: Any, v: Any) -> Any:
        return op.ReduceSum(v, _allow_other_inputs=True, _allow_other_attributes=True, _outputs=["total"])

    def check(self, context: MatchContext, v: ir.Value, total: ir.Value) -> MatchResult:
        result = MatchResult()
        count = terms(context.root)
        if not is_float(v):
            return result.fail("its element type is not a float that the NPU has", v)
        if count is None or count < 2:
            return result.fail("the number of terms in the sum is not known, or there is only one", v)
        uses = list(total.uses())
        if not uses or total.is_graph_output():
            return result.fail("the sum itself is an output", total)
        for user, position in uses:
            factor = _factor(user, position)
            if factor is None:
                return result.fail(
                    f"{user.op_type} takes the sum, and does not divide it by a constant", user
                )
            if abs(factor) * count > self.largest_rest:
                return result.fail(f"the sum of {count} numbers is not divided by about as many", user)
        self._node, self._count, self._uses = context.root, count, uses
        return result

    def rewrite(self, op: Any, v: ir.Value, total: ir.Value) -> Any:  # noqa: ARG002
        for user, position in self._uses:
            factor = scalar(user.inputs[1 - position]) or 0.0
            rest = factor * self._count if user.op_type == "Mul" else factor / self._count
            # Its shape is kept: a constant of rank 3 makes a result of rank 3.
            shape = fixed_shape(user.inputs[1 - position]) or ()
            constant = number(op, v, rest, shape)
            user.replace_input_with(1 - position, constant)
        return like_reduction(op, "ReduceMean", self._node)


def _factor(user: ir.Node, position: int) -> float | None:
    """What a node multiplies its input at ``position`` by, if that is one constant."""
    if user.domain != "" or user.op_type not in ("Mul", "Div") or len(user.inputs) != 2:
        return None
    other = scalar(user.inputs[1 - position])
    if other is None or user.op_type == "Mul":
        return other
    return 1 / other if position == 0 and other else None
