"""Ranges of activations: measured on samples, kept by name, widened beyond what the samples showed.

Ranges that end where the samples ended cut off what comes later: a GRU whose 16 samples were random loses
30 dB on the next ones. 16 bits have room to spare, and are widened always. 8 bits have not: there the samples
that were held out decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hexport.executorch.lowering.inside.operators import base_name

Ranges = dict[str, tuple[Any, Any]]
"""Observer → its lowest and highest number."""
_ROOM = {"16a8w": 4.0, "16a4w": 4.0, "16a4w_block": 4.0, "16a16w": 2.0}
"""Schemes whose ranges are widened unasked: two bits of sixteen, or one where the weights are as fine."""
_BOUNDED = (
    "hardtanh",
    "hardtanh_",
    "relu6",
    "clamp",
    "clamp_",
    "hardsigmoid",
    "sigmoid",
    "softmax",
    "_softmax",
)
_STEPS = (1.0, 1.25, 1.5, 2.0)


def usual_margin(scheme: str) -> float | None:
    """How much wider without asking anybody; None: samples shall decide."""
    return _ROOM.get(scheme)


def best_margin(measure: Callable[[float], float]) -> tuple[float, float]:
    """The margin that samples which gave no range like best, and its dB; the first loss ends the search."""
    best = (_STEPS[0], measure(_STEPS[0]))
    for margin in _STEPS[1:]:
        decibels = measure(margin)
        if decibels <= best[1]:
            break
        best = (margin, decibels)
    return best


def read_ranges(prepared: Any) -> Ranges:
    """What the observers of activations saw so far."""
    return {name: (one.min_val.clone(), one.max_val.clone()) for name, one, _ in _observers(prepared)}


def write_ranges(prepared: Any, ranges: Ranges, margin: float) -> None:
    """Put them into the observers of the same graph, prepared anew."""
    for name, one, ends in _observers(prepared):
        if name in ranges:
            low, high = ranges[name]
            wider = 1.0 if ends else margin
            one.min_val, one.max_val = low * wider, high * wider


def _observers(prepared: Any) -> Iterator[tuple[str, Any, bool]]:
    """Those of tensors that the program computes, each once, and whether it ends by itself.

    What does, as relu6, must end there: the NPU makes it a part of the layer before it, and then the end of
    the range is all that cuts. Of weights and constants nothing is unseen.
    """
    users: dict[int, list[Any]] = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module" and node.args[0].op != "get_attr":
            one = prepared.get_submodule(node.target)
            lowest = getattr(one, "min_val", None)
            if lowest is not None and lowest.numel() == 1:
                users.setdefault(id(one), []).append(node)
    for nodes in users.values():
        ends = any(ends_by_itself(node) for node in nodes)
        yield nodes[0].target, prepared.get_submodule(nodes[0].target), ends


def ends_by_itself(node: Any) -> bool:
    """Whether the tensor that an observer looks at, through other observers, cannot go further."""
    source = node.args[0]
    while source.op == "call_module":
        source = source.args[0]
    return base_name(source) in _BOUNDED
