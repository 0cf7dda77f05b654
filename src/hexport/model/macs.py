"""Multiply-accumulates of a node: the measure of how much of the work is on the NPU.

Only operators that multiply matrices or convolve are counted; everything else is 0. A node whose
shapes are not known counts as None, never as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from hexport.model.graph import Node, TensorType

Types = Mapping[str, TensorType]
_Shape = tuple[int, ...]


def macs(node: Node, types: Types) -> int | None:
    """The node's multiply-accumulates, 0 for operators that do none, None when not known."""
    count = _COUNTERS.get(node.op)
    if count is None:
        return None if node.bodies else 0
    try:
        return count(node, types)
    except (KeyError, IndexError, TypeError, ValueError):
        # A shape is missing or not what the operator requires; the verdict says "not counted".
        return None


def _shape(types: Types, name: str) -> _Shape:
    shape = types[name].shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise ValueError(name)
    return tuple(dim for dim in shape if isinstance(dim, int))


def _conv(node: Node, types: Types, weight: int = 1) -> int:
    # W is [out, in/group, *kernel]: each output element takes one product with each of W[o].
    return prod(_shape(types, node.outputs[0])) * prod(_shape(types, node.inputs[weight])[1:])


def _conv_transpose(node: Node, types: Types) -> int:
    # W is [in, out/group, *kernel]: each input element is multiplied with all of W[i].
    return prod(_shape(types, node.inputs[0])) * prod(_shape(types, node.inputs[1])[1:])


def _gemm(node: Node, types: Types) -> int:
    a = _shape(types, node.inputs[0])
    return prod(_shape(types, node.outputs[0])) * a[0 if node.attributes.get("transA") else 1]


def _matmul(node: Node, types: Types) -> int:
    return prod(_shape(types, node.outputs[0])) * _shape(types, node.inputs[0])[-1]


def _matmul_nbits(node: Node, types: Types) -> int:
    inner = node.attributes["K"]
    assert isinstance(inner, int)
    return prod(_shape(types, node.outputs[0])) * inner


def _recurrent(gates: int) -> Callable[[Node, Types], int]:
    def count(node: Node, types: Types) -> int:
        steps, batch, _ = _shape(types, node.inputs[0])
        # W is [directions, gates·hidden, input], R is [directions, gates·hidden, hidden].
        directions, rows, width = _shape(types, node.inputs[1])
        return steps * batch * directions * rows * (width + rows // gates)

    return count


def _einsum(node: Node, types: Types) -> int:
    equation = node.attributes["equation"]
    assert isinstance(equation, bytes)
    terms = equation.decode().replace(" ", "").split("->")[0].split(",")
    if len(terms) < 2:
        return 0
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.inputs, strict=True):
        sizes |= dict(zip(term, _shape(types, name), strict=True))
    return prod(sizes.values())


_COUNTERS: dict[str, Callable[[Node, Types], int]] = {
    "Conv": _conv,
    "ConvInteger": _conv,
    "FusedConv": _conv,
    "QLinearConv": lambda node, types: _conv(node, types, weight=3),
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulNBits": _matmul_nbits,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Einsum": _einsum,
}
