"""What the rules for one float function of one input share: they differ in the formula alone."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.literals import number
from hexport.rewrite.rule import Rule
from hexport.rewrite.values import is_float

EXP_BOUND = 88.0
"""Beyond it the HTP's exponential wraps around to ±131008 or 0; and float32 is close to its own end."""


class FloatFunctionRule(Rule):
    """``op_type(x)`` of a float ``x`` becomes what ``formula`` builds."""

    op_type: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.node: ir.Node | None = None
        """The node being replaced, for its attributes."""

    def pattern(self, op: Any, x: Any) -> Any:
        return getattr(op, self.op_type)(x, _allow_other_attributes=True)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:
        self.node = context.root
        result = MatchResult()
        if not is_float(x):
            return result.fail("the element type is not float32 or float16", x)
        return result

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return self.formula(Arithmetic(op, x), x)

    def formula(self, do: Arithmetic, x: ir.Value) -> ir.Value:
        raise NotImplementedError

    def attribute(self, name: str, default: float) -> float:
        """A float attribute of the node being replaced."""
        found = self.node.attributes.get(name) if self.node is not None else None
        return default if found is None else found.as_float()


class Arithmetic:
    """``op`` whose operands may be plain numbers; they take the element type of ``like``."""

    def __init__(self, op: Any, like: ir.Value) -> None:
        self._op = op
        self._like = like

    def __call__(self, op_type: str, *operands: ir.Value | float, **attributes: Any) -> ir.Value:
        inputs = [o if isinstance(o, ir.Value) else number(self._op, o, self._like) for o in operands]
        result: ir.Value = getattr(self._op, op_type)(*inputs, **attributes)
        return result

    def exp(self, x: ir.Value) -> ir.Value:
        """Exp where the HTP computes it: see :mod:`hexport.rewrite.faults.exp_in_range`."""
        return self("Exp", self("Clip", x, -EXP_BOUND, EXP_BOUND))

    def polynomial(self, u: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
        """Lowest power first, by Horner's scheme."""
        *lower, second, highest = coefficients
        result = self("Add", self("Mul", u, highest), second)
        for coefficient in reversed(lower):
            result = self("Add", self("Mul", result, u), coefficient)
        return result

    def odd_series(self, x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
        """x · polynomial(x²), which is as exact for small x as a difference of two terms is not."""
        return self("Mul", x, self.polynomial(self("Mul", x, x), coefficients))

    def near_or_far(
        self, x: ir.Value, bound: float, coefficients: tuple[float, ...], far: ir.Value
    ) -> ir.Value:
        """The odd series where |x| < bound, ``far`` elsewhere. The series never sees more than the bound."""
        near = self.odd_series(self("Clip", x, -bound, bound), coefficients)
        return self("Where", self("Less", self("Abs", x), bound), near, far)
