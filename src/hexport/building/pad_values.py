"""``--pad``: what inputs are filled up with, held against what the inputs can hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hexport.errors import UsageError
from hexport.model import Graph
from hexport.packaging.manifest import Number


def refuse_pad(
    pad: Mapping[str, Number], graph: Graph, buckets: Collection[str], freeze: Mapping[str, str]
) -> None:
    """Every value must be of use: for an input that is filled up, and a number of its type."""
    for name, value in pad.items():
        if name not in graph.inputs:
            raise UsageError(
                f"--pad {name}: the model has no such input", why=f"it has: {', '.join(graph.inputs)}"
            )
        tensor = graph.inputs[name]
        if name in freeze or not set(tensor.shape or ()) & set(buckets):
            raise UsageError(
                f"--pad {name}: nothing of it is filled up",
                why=f"it is {tensor}, and --bucket varies {', '.join(buckets) or 'no dim'}",
                next="leave it out, or give buckets for one of its dims",
            )
        if not _holds(tensor.dtype, value):
            raise UsageError(f"--pad {name}={value}: no number that {tensor.dtype} holds")


def _holds(dtype: str, value: Number) -> bool:
    import numpy as np

    if not np.isfinite(value):
        return False
    with np.errstate(all="ignore"):
        try:
            held = np.array(value).astype(dtype)
        except (TypeError, ValueError, OverflowError):
            return False
    # A float may be rounded, a whole number must stay what it is.
    return bool(np.isfinite(held)) if held.dtype.kind == "f" else bool(held == value)
