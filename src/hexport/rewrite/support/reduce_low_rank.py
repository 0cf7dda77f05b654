"""A reduction of six axes or more is computed on fewer, which is all the HTP addresses.

x [a,b,c,d,e,f] ──► ReduceMean(2, 3) ──► y

x ──► Reshape [a·b,c·d,e·f] ──► ReduceMean(1) ──► Reshape ──► y
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reduce, reshape
from hexport.rewrite.support.low_rank import MOST_AXES, has_many_axes
from hexport.rewrite.values import constant, fixed_shape


class ReduceMeanLowRank(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMean"})
    op_type: ClassVar[str] = "ReduceMean"

    def concerns(self, node: ir.Node) -> bool:
        return has_many_axes(node)

    def why_not(self) -> str:
        shape = fixed_shape(self.required(0))
        if shape is None or 0 in shape:
            return "the input's shape is not fixed, or has no elements"
        axes = self._axes(len(shape))
        if axes is None:
            return "the axes are not constant"
        left = len(_runs(shape, axes))
        return "" if left <= MOST_AXES else f"{left} axes are left after merging"

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        axes = self._axes(len(shape)) or set()
        runs = _runs(shape, axes)
        few = reshape(op, value, [size for size, _ in runs])
        result = reduce(op, self.op_type, few, [i for i, run in enumerate(runs) if run[1]], self.opset)
        keep = self.int_attribute("keepdims", 1)
        sizes = [1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes]
        return reshape(op, result, sizes)

    def _axes(self, rank: int) -> set[int] | None:
        listed = self.node.attributes.get_ints("axes", None)
        if self.input(1) is not None:
            known = constant(self.input(1))
            if known is None:
                return None
            listed = np.asarray(known, np.int64).tolist()
        if not listed and self.int_attribute("noop_with_empty_axes", 0):
            return None
        return {axis % rank for axis in listed} if listed else set(range(rank))


class ReduceSumLowRank(ReduceMeanLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceSum"})
    op_type: ClassVar[str] = "ReduceSum"


class ReduceMaxLowRank(ReduceMeanLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMax"})
    op_type: ClassVar[str] = "ReduceMax"


class ReduceMinLowRank(ReduceMeanLowRank):
    cures: ClassVar[frozenset[str]] = frozenset({"ReduceMin"})
    op_type: ClassVar[str] = "ReduceMin"


def _runs(shape: tuple[int, ...], axes: set[int]) -> list[tuple[int, bool]]:
    """Sizes of neighbouring axes that are all reduced or all kept."""
    groups = groupby(range(len(shape)), key=lambda axis: axis in axes)
    return [(prod(shape[axis] for axis in run), reduced) for reduced, run in groups]
