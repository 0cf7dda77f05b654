"""Better integers than the nearest: each technique takes a layer's integers and gives others.

Nothing here is good in itself: the search keeps what wins on data it was not fitted to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hexport.quantization.carrying import carried
from hexport.quantization.damping import proven_damping
from hexport.quantization.encoding import Floats, Integers
from hexport.quantization.layer_inputs import Moments
from hexport.quantization.weights import Layer, LayerIntegers


def correct_bias(layer: Layer, rounded: LayerIntegers, moments: Moments) -> LayerIntegers:
    """The bias takes back what rounding the weights adds on the average (analytic bias correction)."""
    if rounded.bias is None:
        return rounded
    error = as_rows(layer, rounded.weight - layer.weight)
    shift = np.einsum("gol,gl->go", error, moments.mean).reshape(-1)
    return replace(rounded, bias=(rounded.bias - shift).astype(np.float32))


def carry_errors(layer: Layer, rounded: LayerIntegers, moments: Moments) -> LayerIntegers:
    """Round one input's weights after the other, and let the ones to come make up for it (GPTQ).

    The least change of the layer's results on the data seen, not of its weights.
    """
    squares, halves = moments.squares, moments.halves
    if squares is None or halves is None or rounded.encoding.block or not np.isfinite(squares).all():
        return rounded
    rows = as_rows(layer, layer.weight)
    each = np.broadcast_to(rounded.encoding.scale.reshape(-1), rows.shape[0] * rows.shape[1])
    scales, kind = each.reshape(*rows.shape[:2]), rounded.encoding.type
    if moments.damping is None:
        moments.damping = proven_damping(rows, halves, moments.count)
    # The least integer stays unused, as in every symmetric encoding.
    whole = carried(rows, scales, squares, moments.damping, kind.high)
    return replace(rounded, integers=_from_rows(layer, whole.astype(kind.array)))


def as_rows(layer: Layer, weight: Floats) -> Floats:
    """[group, output, length]: each row is multiplied with one vector of the layer's input."""
    if layer.node.op_type == "Conv":
        group = layer.node.attributes.get_int("group", 1)
        return weight.reshape(group, weight.shape[0] // group, -1)
    return (weight if _turned(layer) else weight.T)[None]


def _from_rows(layer: Layer, rows: Integers) -> Integers:
    if layer.node.op_type == "Conv":
        return rows.reshape(layer.weight.shape)
    result: Integers = rows[0] if _turned(layer) else rows[0].T
    return result


def _turned(layer: Layer) -> bool:
    if layer.node.op_type != "Gemm":
        return False
    turned = layer.node.attributes.get_int("transB", 0)
    return bool(turned)
