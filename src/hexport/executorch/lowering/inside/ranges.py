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
_ROOM = dict.fromkeys(("16a8w", "16a4w", "16a4w_block", "16a16w"), 2.0)
"""Schemes whose ranges are widened unasked: a bit of sixteen, as for ONNX models. EfficientNet-Lite0
feels a second one: 30.1 dB on the worst of four photographs, and 32.7 without it."""
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
_CUTS = ("relu", "relu_", "relu6", "hardtanh", "hardtanh_", "clamp", "clamp_")
"""Operators that give the same if what goes in was cut like their results."""
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
            if _is_whole(one):
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


def cut_before(prepared: Any) -> None:
    """What only goes into operators that cut gets the range of their results.

    The quantiser gives it the range that it has before, of which relu6 may use a tenth. The NPU makes such a
    pair one operator and does not mind; torch, which judges the program, and a pair that stays two, do.
    """
    seen: dict[int, int] = {}
    looks = [node for node in prepared.graph.nodes if node.op == "call_module"]
    for node in looks:
        one = prepared.get_submodule(node.target)
        seen[id(one)] = seen.get(id(one), 0) + 1
    for node in looks:
        one = prepared.get_submodule(node.target)
        results = [_result_range(prepared, user) for user in node.users]
        found = [each for each in results if each is not None]
        if seen[id(one)] > 1 or len(found) < len(results) or not found or not _is_whole(one):
            continue
        one.min_val = min(low for low, _ in found).clone()
        one.max_val = max(high for _, high in found).clone()


def _result_range(prepared: Any, node: Any) -> tuple[Any, Any] | None:
    """Of an operator that cuts, as its observer has it."""
    if node.op != "call_function" or base_name(node) not in _CUTS or len(node.users) != 1:
        return None
    (look,) = node.users
    one: Any = prepared.get_submodule(look.target) if look.op == "call_module" else None
    return (one.min_val, one.max_val) if _is_whole(one) else None


def _is_whole(observer: Any) -> bool:
    """Whether it has one range for all of a tensor."""
    return getattr(getattr(observer, "min_val", None), "numel", lambda: 0)() == 1
