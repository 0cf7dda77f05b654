"""A quantised model whose sums are cut off on the CPU as they are on the HTP (``coarse_sums.py``).

x ──► Conv ──► Q          x ──► Conv ──► Mul ──► Add ──► Floor ──► Mul ──► Add ──► Q

Else the CPU would promise what the NPU does not keep, and biases that make up for it would be wrong there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx_ir as ir

from hexport.quantization.coarse_sums import Grains, stored_sum
from hexport.quantization.encoding import Floats
from hexport.quantization.initializers import add_initializer
from hexport.rewrite.values import constant

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_BIAS = 2


@contextmanager
def htp_sums(model: ir.Model) -> Iterator[None]:
    """Put that into the model, where it shows; after the block the model is as it was."""
    graph = model.graph
    before = set(graph.initializers)
    put: list[tuple[ir.Value, list[ir.Node], tuple[tuple[ir.Node, int], ...]]] = []
    for node in list(graph):
        value = node.outputs[0]
        grains = _grains(node)
        if grains is None or not grains.shows(_step_after(value)):
            continue
        readers = tuple((user, index) for user, index in value.uses())
        chain = grains.nodes(value, _Constants(graph, f"{value.name}_htp_constant"))
        for number, made in enumerate(chain):
            made.name = made.outputs[0].name = f"{value.name}_htp_{number}"
        graph.insert_after(node, chain)
        for user, index in readers:
            user.replace_input_with(index, chain[-1].outputs[0])
        put.append((value, chain, readers))
    try:
        yield
    finally:
        for value, chain, readers in put:
            for user, index in readers:
                user.replace_input_with(index, value)
            graph.remove(chain, safe=True)
        for name in set(graph.initializers) - before:
            del graph.initializers[name]


def _grains(node: ir.Node) -> Grains | None:
    if node.op_type not in _LAYERS or len(node.inputs) <= _BIAS:
        return None
    given, cut = node.inputs[_BIAS], stored_sum(node)
    bias = None if given is None else given.producer()
    if cut is None or cut.grain == 1 or bias is None or bias.op_type != "DequantizeLinear":
        return None
    integers, scale = constant(bias.inputs[0]), constant(bias.inputs[1])
    return None if integers is None or scale is None else cut.grains(integers, scale)


def _step_after(value: ir.Value) -> float:
    """Of the rounding that comes next; 0 where there is none."""
    readers = value.consumers()
    if len(readers) != 1 or readers[0].op_type != "QuantizeLinear":
        return 0.0
    scale = constant(readers[0].inputs[1])
    return 0.0 if scale is None else float(np.max(scale))


class _Constants:
    """Makes initializers with names of their own."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self._graph, self._name, self._count = graph, name, 0

    def __call__(self, array: Floats) -> ir.Value:
        self._count += 1
        return add_initializer(self._graph, f"{self._name}_{self._count}", ir.tensor(array))
