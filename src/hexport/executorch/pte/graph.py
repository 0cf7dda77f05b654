"""How the inputs and outputs of a delegate's graph meet the values of the ``.pte`` around it.

ExecuTorch's runtime hands values over by their order alone. It sorts a graph's inputs by the number in their
name (``input_1_y@0``), unless the binary was made by another tool, and takes the outputs whose names begin
with ``output_`` as the graph lists them; the others are intermediate results that a debug build gives out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexport.backend.context_binary import ContextGraph, ContextTensor
from hexport.executorch.pte.program import PteMethod

_NUMBERED = re.compile(r"[^_]*_(\d+)")
_OUTPUT = "output_"
_BITS = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class Meeting:
    """One value, and the tensor of the graph that it is."""

    value: int
    tensor: ContextTensor


@dataclass(frozen=True)
class GraphCall:
    """A delegate's graph with all that goes in and out."""

    inputs: tuple[Meeting, ...]
    outputs: tuple[Meeting, ...]


def graph_call(method: PteMethod, delegate: int, graph: ContextGraph, *, foreign: bool) -> GraphCall | None:
    """``foreign``: another tool made the binary. None: the two do not fit, or it is not called once."""
    calls = [values for index, values in method.delegate_calls if index == delegate]
    inputs = list(graph.inputs) if foreign else sorted(graph.inputs, key=_number)
    outputs = [tensor for tensor in graph.outputs if foreign or tensor.name.startswith(_OUTPUT)]
    if len(calls) != 1 or len(calls[0]) != len(inputs) + len(outputs):
        return None
    pairs = [Meeting(value, one) for value, one in zip(calls[0], (*inputs, *outputs), strict=True)]
    return GraphCall(tuple(pairs[: len(inputs)]), tuple(pairs[len(inputs) :]))


def misread(method: PteMethod, call: GraphCall) -> str:
    """The first value that the graph reads otherwise than it was written; empty: there is none."""
    for meeting in (*call.inputs, *call.outputs):
        value, name = method.between.get(meeting.value), meeting.tensor.name
        if value is None:
            continue
        mine, bits = _BITS.search(value.dtype), _BITS.search(meeting.tensor.dtype)
        if bits and mine and bits[1] != mine[1]:
            return f"{name} is {meeting.tensor.dtype} to the graph, and {value.dtype} to the .pte"
        # Measured with executorch 1.5.1: a module that was lowered with channels-last inputs gives noise.
        if list(value.order) != sorted(value.order):
            return f"{name} lies in memory in the order {list(value.order)}, which the graph does not know"
    return ""


def _number(tensor: ContextTensor) -> int:
    found = _NUMBERED.match(tensor.name)
    return int(found[1]) if found else 0
