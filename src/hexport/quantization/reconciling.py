"""Where the NPU computes otherwise than the CPU: the first integer node after which the two part."""

from __future__ import annotations

import time

from hexport.backend.failures import BackendError
from hexport.quantization.judging import Judge
from hexport.quantization.plan import FLOAT, Plan, settle_moving
from hexport.quantization.recipe import Recipe
from hexport.quantization.roles import kind_of
from hexport.quantization.workshop import Workshop
from hexport.toolchain import WorkerError

_SECONDS = 100.0
"""How long one node is looked for: the simulator takes half a minute a sample for a large detector."""


def find_misread(shop: Workshop, judge: Judge, plan: Plan, recipe: Recipe, tolerance_db: float) -> str | None:
    """The node, by bisection over how many of them are in integers; None when it is not found in time."""
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
    began, tries = time.monotonic(), 0
    while high - low > 1:
        spent = time.monotonic() - began
        left = (high - low - 1).bit_length()
        # A search that cannot end in time is given up at once: half of one tells nothing.
        if tries and spent / tries * left > _SECONDS - spent:
            return None
        middle = (low + high) // 2
        tries += 1
        if parts(middle):
            high = middle
        else:
            low = middle
    return names[high - 1] if names else None
