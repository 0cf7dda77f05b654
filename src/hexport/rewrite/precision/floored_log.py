"""What the rules for a logarithm with a floor share: finding both, and the ranges they may be told of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.precision.fp16 import Bounds
from hexport.rewrite.precision.log_floor import Floor, find_floor
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import is_float


class FlooredLogRule(Rule):
    """A rule for ``Log`` right behind a constant floor."""

    purpose: ClassVar[Purpose] = Purpose.RANGE
    cures: ClassVar[frozenset[str]] = frozenset({"Log"})

    def __init__(self, ranges: Mapping[str, Bounds] | None = None) -> None:
        super().__init__()
        self.ranges = ranges or {}

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Log(x)

    def check(self, context: MatchContext, x: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        if not is_float(x):
            return result.fail("its element type is not a float that the NPU has", x)
        bound = find_floor(x)
        if bound is None:
            return result.fail("no constant floor (Clip, Max or Add) stands before the Log", x)
        return self.check_floor(result, x, bound)

    @abstractmethod
    def check_floor(self, result: MatchResult, x: ir.Value, bound: Floor) -> MatchResult:
        """Whether the rule applies to this floor; what it found is kept for ``rewrite``."""
