"""ReverseSequence with constant lengths becomes one Gather: the backend has no ReverseSequence.

x ──► ReverseSequence ──► y     one length for all:   x ──► Gather(time) ──► y
lengths ────┘                   several lengths:      x ──► Reshape ──► Gather(time·batch) ──► Reshape ──► y
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reshape, take
from hexport.rewrite.values import constant, fixed_shape


class ReverseSequenceToGather(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"ReverseSequence"})
    op_type: ClassVar[str] = "ReverseSequence"

    def why_not(self) -> str:
        if fixed_shape(self.required(0)) is None:
            return "the input's shape is not fixed"
        return "" if constant(self.input(1)) is not None else "the lengths are not constant"

    def replace(self, op: Any) -> Any:
        value = self.required(0)
        shape = fixed_shape(value) or ()
        time = self.int_attribute("time_axis", 0)
        lengths = np.asarray(constant(self.input(1)), np.int64)
        orders = [_order(shape[time], int(length)) for length in lengths]
        if (lengths == lengths[0]).all():
            return take(op, value, orders[0].tolist(), time)
        # ONNX lets time and batch be the first two axes only, in either order.
        steps = np.stack(orders, axis=1 - time)
        rows, columns = np.indices(steps.shape)
        flat = steps * shape[1] + columns if time == 0 else rows * shape[1] + steps
        merged = reshape(op, value, (shape[0] * shape[1], *shape[2:]))
        return reshape(op, take(op, merged, flat.ravel().tolist(), 0), shape)


def _order(size: int, length: int) -> NDArray[np.int64]:
    """Positions along time: the first ``length`` backwards, the rest as it is."""
    order = np.arange(size, dtype=np.int64)
    order[:length] = order[:length][::-1]
    return order
