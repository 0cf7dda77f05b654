"""Which scheme a model is in already: float, or quantised by QuantizeLinear / DequantizeLinear pairs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hexport.model.graph import Graph, TensorType

_BITS = re.compile(r"u?int(\d+)$")


def scheme_of(graph: Graph, types: Mapping[str, TensorType]) -> str:
    """``fp16`` for a float model, else ``8a8w``, ``16a8w`` … by the widest activation and narrowest weight.

    Biases (int32) do not count as weights.
    """
    known = {**types, **graph.constants}
    activations: set[int] = set()
    weights: set[int] = set()
    for node in graph.walk():
        if node.op == "QuantizeLinear" and node.outputs and node.inputs[0] not in graph.constants:
            activations |= _bits(known, node.outputs[0])
        if node.op == "DequantizeLinear" and node.inputs and node.inputs[0] in graph.constants:
            weights |= _bits(known, node.inputs[0]) - {32}
    if not activations:
        return "fp16"
    return f"{max(activations)}a{min(weights or activations)}w"


def _bits(types: Mapping[str, TensorType], name: str) -> set[int]:
    found = _BITS.match(types[name].dtype) if name in types else None
    return {int(found[1])} if found else set()
