"""One set of integers for all buckets: what was calibrated at one size is used at the others.

Ranges and weights are those of the largest bucket, byte for byte, so that the compiler finds the same weights
in every graph and stores them once. They are found by the node that reads them: constants are numbered, and
those of two buckets with one name may be of different tensors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from hexport.building.shared_biases import bias_of
from hexport.building.stored_integers import ROUNDINGS_APART, numbers, reals
from hexport.preparation.saving import save
from hexport.quantization.initializers import add_initializer
from hexport.rewrite.unused import remove_unused_constants

_PAIR = ("QuantizeLinear", "DequantizeLinear")
_MOST_STEPS = 16.0
"""Two roundings of the same numbers lie so many steps apart at most. One that carries errors on to other
weights, fitted to other samples, moves some of them far; another number is further off."""


def adopt(model: Path, settled: Path, output: Path) -> int:
    """Write ``model`` with the integers, scales and zero points that the same nodes of ``settled`` have.

    Gives how many bytes of integers it still has to itself: constants that follow from its sizes.
    """
    own = ir.load(model)
    theirs = {str(node.name): node for node in ir.load(settled).graph if node.op_type in _PAIR}
    taken: dict[str, ir.Value] = {}
    adopted: set[ir.Node] = set()
    biases = [bias for bias in map(bias_of, own.graph) if bias is not None]
    later = {bias.node for bias in biases}
    pairs = [node for node in own.graph if node.op_type in _PAIR]
    for node in [node for node in pairs if node not in later]:
        other = theirs.get(str(node.name))
        if other is not None and _stands_for_the_same(node, other):
            adopted.add(node)
            for index, value in enumerate(other.inputs):
                if value is not None and value.const_value is not None:
                    node.replace_input_with(index, _moved(value, own.graph, taken))
    for bias in biases:
        other = theirs.get(str(bias.node.name)) if bias.weight in adopted else None
        if other is not None and bias.follow(other, own.graph):
            adopted.add(bias.node)
        else:
            bias.rescale(own.graph)
    remove_unused_constants(own.graph)
    save(own, output)
    return sum(_stored_bytes(node) for node in pairs if node not in adopted)


def _stored_bytes(node: ir.Node) -> int:
    integers = node.inputs[0]
    return integers.const_value.nbytes if integers is not None and integers.const_value is not None else 0


def _moved(value: ir.Value, graph: ir.Graph, taken: dict[str, ir.Value]) -> ir.Value:
    name, tensor = str(value.name), value.const_value
    assert tensor is not None
    if name not in taken:
        copy = ir.tensor(tensor.numpy(), dtype=tensor.dtype)
        taken[name] = add_initializer(graph, f"{name}_of_all", copy)
    return taken[name]


def _stands_for_the_same(node: ir.Node, other: ir.Node) -> bool:
    """Whether the nodes differ in their encodings at most."""
    if (node.op_type, node.domain, _attributes(node)) != (other.op_type, other.domain, _attributes(other)):
        return False
    for mine, there in zip(node.inputs, other.inputs, strict=False):
        ours = None if mine is None else mine.const_value
        his = None if there is None else there.const_value
        if (ours is None) != (his is None):
            return False
        if ours is not None and his is not None and (ours.dtype, ours.shape) != (his.dtype, his.shape):
            return False
    return len(node.inputs) == len(other.inputs) and _same_numbers(node, other)


def _same_numbers(node: ir.Node, other: ir.Node) -> bool:
    """Of a constant: 1/n at another size n is another number, though it is stored in the same form."""
    mine, theirs = reals(node), reals(other)
    if mine is None or theirs is None:
        return mine is theirs
    scale = np.maximum(np.abs(numbers(node, 1)), np.abs(numbers(other, 1))).max(initial=0.0)
    apart = np.abs(mine - theirs)
    on_the_whole = np.sqrt(np.mean(apart**2)) if apart.size else 0.0
    return bool(on_the_whole <= ROUNDINGS_APART * scale and apart.max(initial=0.0) <= _MOST_STEPS * scale)


def _attributes(node: ir.Node) -> dict[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}
