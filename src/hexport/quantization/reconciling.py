"""Where the NPU computes otherwise than the CPU: the first integer node after which the two part."""

from __future__ import annotations

from hexport.backend.failures import BackendError
from hexport.quantization.judging import Judge
from hexport.quantization.plan import FLOAT, Plan, settle_moving
from hexport.quantization.recipe import Recipe
from hexport.quantization.roles import kind_of
from hexport.quantization.work import all_macs
from hexport.quantization.workshop import Workshop
from hexport.toolchain import WorkerError

_WORK = 5e10
"""Multiply-accumulates that the simulator does in looking for one node: 100 seconds. A count and no time,
so that the same gives the same on any machine."""
_WORK_A_NODE = 5e6
"""What compiling a node takes, in the same measure."""


def find_misread(shop: Workshop, judge: Judge, plan: Plan, recipe: Recipe, tolerance_db: float) -> str | None:
    """The node, by bisection over how many of them are in integers; None when it would be too much work."""
    names = [
        str(node.name)
        for node in shop.model.graph
        if plan.of(node).activation is not None
        and (known := kind_of(node)) is not None
        and known.kind != "moving"
    ]

    def parts(count: int) -> bool:
        """Whether the two differ with the first ``count`` in integers and the rest in float."""
        cut = plan.copy()
        for name in names[count:]:
            cut.precisions[name] = FLOAT
        settle_moving(shop.model, cut)
        model = shop.build(cut, recipe)
        try:
            _, npu, _ = judge.on_npu(model, 1)
        except (BackendError, WorkerError):
            return True
        return npu.lowest_db < judge.on_cpu(model)[0].lowest_db - tolerance_db

    low, high = 0, len(names)
    macs = all_macs(shop.model)
    tries = max(high - 1, 0).bit_length()
    # A search that cannot end is not begun: half of one tells nothing.
    if tries * (sum(macs.values()) + len(macs) * _WORK_A_NODE) > _WORK:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if parts(middle):
            high = middle
        else:
            low = middle
    return names[high - 1] if names else None
