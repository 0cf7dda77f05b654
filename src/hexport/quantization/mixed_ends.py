"""Where a model ends by joining numbers of different size: boxes up to 640 and scores up to 1.

boxes ──► Q ──► DQ ──┐
                     ├──► Concat ──► output      in fp16: each part keeps the steps it was made in
scores ─► Q ──► DQ ──┘

One encoding for both has steps for the boxes, and at 8 bits every score becomes 0. The output's SQNR does not
show it: it is the boxes'.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from hexport.quantization.plan import FLOAT, Plan, final_readers
from hexport.quantization.workshop import Workshop
from hexport.rewrite.values import constant

_APART = 8.0
"""The largest part is so many times the smallest: three bits that the smallest would lose."""


def keep_mixed_ends(shop: Workshop, plan: Plan) -> None:
    """Leave such a Concat in float."""
    for node, smallest, largest in _mixed_ends(shop, plan):
        reason = f"it joins numbers up to {smallest:.3g} and up to {largest:.3g} at the model's end"
        plan.keep(str(node.name), FLOAT, f"{reason}: one step for both would lose the small ones")


def mixed_in_integers(shop: Workshop, plan: Plan) -> list[str]:
    """What is to be said of those that are not in float: the chip has none, or the user wants it so."""
    return [
        f"{node.name} joins numbers up to {smallest:.3g} and up to {largest:.3g} at the model's end, in one "
        f"encoding of {bits.bits} bits: the small ones lose their steps, and no SQNR shows it"
        for node, smallest, largest in _mixed_ends(shop, plan)
        if (bits := plan.of(node).activation) is not None
    ]


def _mixed_ends(shop: Workshop, plan: Plan) -> Iterator[tuple[ir.Node, float, float]]:
    """Each, with the sizes of its parts, if nothing computes in integers with what it joins."""
    for node in shop.model.graph:
        if node.op_type != "Concat" or plan.of(node).activation is None or final_readers(node):
            continue
        sizes = sorted(size for size in _sizes(node, shop) if size > 0)
        if sizes and sizes[-1] >= _APART * sizes[0]:
            yield node, sizes[0], sizes[-1]


def _sizes(node: ir.Node, shop: Workshop) -> Iterator[float]:
    """The largest magnitude of each part, as far as it is known."""
    for value in node.inputs:
        array = constant(value)
        if array is not None:
            yield float(np.abs(array).max(initial=0))
        elif value is not None and (seen := shop.histograms.get(str(value.name))) is not None:
            yield max(abs(seen.low), abs(seen.high))
