"""Better integers than the nearest: each technique takes a layer's integers and gives others.

Nothing here is good in itself: the search keeps what wins on data it was not fitted to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.quantization.encoding import Encoding, Floats, Integers
from hexport.quantization.layer_inputs import Moments
from hexport.quantization.weights import Layer, LayerIntegers

_DAMPING = 0.01
"""Of the mean second moment, added to each: inputs that were never active must not be divided by."""
_BLOCK = 64


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
    if moments.squares is None or rounded.encoding.block or not np.isfinite(moments.squares).all():
        return rounded
    rows = as_rows(layer, layer.weight)
    scales = np.broadcast_to(rounded.encoding.scale.reshape(-1), rows.shape[0] * rows.shape[1])
    integers = _carried(rows, scales.reshape(*rows.shape[:2]), moments.squares, rounded.encoding)
    return replace(rounded, integers=_from_rows(layer, integers))


def _carried(weights: Floats, scales: Floats, squares: NDArray[Any], encoding: Encoding) -> Integers:
    """``weights`` is [group, output, input]; Frantar et al., 2022, with the inputs that matter most first."""
    strength = np.einsum("gii->gi", squares)
    order = np.argsort(-strength, axis=1, kind="stable")
    inverse = _inverse_root(squares, strength, order)
    left = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    result = np.empty(left.shape, encoding.type.array)
    length = left.shape[2]
    for begin in range(0, length, _BLOCK):
        end = min(begin + _BLOCK, length)
        errors = np.empty((*left.shape[:2], end - begin))
        for column in range(begin, end):
            # The least integer stays unused, as in every symmetric encoding.
            whole = np.clip(np.rint(left[:, :, column] / scales), -encoding.type.high, encoding.type.high)
            result[:, :, column] = whole
            error = (left[:, :, column] - whole * scales) / inverse[:, column, column][:, None]
            errors[:, :, column - begin] = error
            left[:, :, column:end] -= error[:, :, None] * inverse[:, column, None, column:end]
        left[:, :, end:] -= errors @ inverse[:, begin:end, end:]
    back = np.argsort(order, axis=1, kind="stable")
    return np.take_along_axis(result, back[:, None, :], axis=2)


def _inverse_root(squares: NDArray[Any], strength: NDArray[Any], order: Integers) -> NDArray[Any]:
    """The upper triangular root of the inverse of the damped second moments, in the order of work."""
    rows = np.take_along_axis(squares, order[:, :, None], axis=1)
    sorted_ = np.take_along_axis(rows, order[:, None, :], axis=2)
    damping = _DAMPING * np.maximum(strength.mean(axis=1), 1e-12)
    sorted_ += damping[:, None, None] * np.eye(squares.shape[1])
    return np.linalg.cholesky(np.linalg.inv(sorted_)).transpose(0, 2, 1)


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
