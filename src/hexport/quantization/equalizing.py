"""The same float model with channels of like ranges, so that one scale suits all channels of a tensor.

x ──► Conv(W) ──► y ──► Conv(V)          x ──► Conv(W/s) ──► y/s ──► Conv(V·s)

One factor a channel, half from what the activation needs and half from what the weights that read it need
(Nagel et al., 2019, between convolutions; Xiao et al., 2022, behind norms). Nothing is good in itself: the
search keeps it where it wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.axes import along
from hexport.model.reference import cpu_session
from hexport.observe.comparing import compare
from hexport.quantization.channel_groups import Group, groups_of, is_depthwise
from hexport.quantization.encoding import Floats
from hexport.quantization.initializers import add_initializer
from hexport.quantization.observing import Sample, chunks, exposed_session
from hexport.quantization.roles import weight_of
from hexport.rewrite.values import constant

_ALPHA = 0.7
"""How much of the unevenness the weights take over; all of it where each channel has its own scale."""
_WIDEST = 32.0
"""Between the largest and the least factor: a channel that was nearly silent may speak up in other data."""
_EXACT_DB = 60.0
_LIKE = 1.1
"""Factors closer together than this change nothing worth the rounding."""
Maxima = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Equalized:
    """What came of it: a model, or why there is none."""

    model: ir.Model | None
    tensors: int
    note: str


def equalize(model: ir.Model, samples: Iterable[Sample], folder: Path) -> Equalized:
    """A copy of ``model`` with the same nodes, whose results are the same on ``samples``."""
    copy = model.clone()
    groups = groups_of(copy)
    if not groups:
        return Equalized(None, 0, "no tensor has factors that its neighbours can take")
    maxima = _channel_maxima(copy, groups, samples, folder)
    count = 0
    for group in groups:
        factors = _factors(group, maxima)
        if factors is not None:
            _apply(copy.graph, group, factors)
            count += 1
    if not count:
        return Equalized(None, 0, "the channels of every tensor are alike already")
    closeness = _closeness(model, copy, next(iter(samples)), folder)
    if closeness < _EXACT_DB:
        return Equalized(None, count, f"the equalised float model is only {closeness:.0f} dB from the model")
    return Equalized(copy, count, "")


def _channel_maxima(
    model: ir.Model, groups: Iterable[Group], samples: Iterable[Sample], folder: Path
) -> dict[str, NDArray[Any]]:
    """The largest magnitude of each channel of what is read, over the samples."""
    axes = {str(value.name): axis for group in groups for value, axis in _read(group).items()}
    found: dict[str, NDArray[Any]] = {}
    for number, chunk in enumerate(chunks(model)):
        names = [name for name in chunk if name in axes]
        if not names:
            continue
        session = exposed_session(model, names, folder / f"maxima{number}.onnx")
        for sample in samples:
            for name, array in zip(names, session.run(names, dict(sample)), strict=True):
                others = tuple(i for i in range(array.ndim) if i != axes[name])
                largest = np.abs(array).max(axis=others)
                found[name] = np.maximum(found.get(name, largest), largest)
    return found


def _read(group: Group) -> dict[ir.Value, int]:
    """The tensors that meet weights, with the axes of their channels."""
    values = [node.inputs[0] for node in group.readers]
    return {value: group.axes[value] for value in values if value is not None}


def _factors(group: Group, maxima: Maxima) -> Floats | None:
    """What each channel is divided by; None when it would change nothing."""
    largest = np.max([maxima[str(value.name)] for value in _read(group)], axis=0).astype(np.float64)
    if not np.isfinite(largest).all() or not largest.any():
        return None
    weights = [_by_input(node) for node in group.readers if not is_depthwise(node)]
    silent = largest <= 0
    if weights:
        read = np.max([np.abs(w).max(axis=tuple(range(1, w.ndim))) for w in weights], axis=0)
        unread = read <= 0
        factors = largest**_ALPHA / np.where(unread, 1, read) ** (1 - _ALPHA)
        factors[unread] = np.max(factors[~unread], initial=0) or 1
    else:
        factors = largest.copy()
    factors[silent] = factors[~silent].min()
    factors = np.maximum(factors, factors.max() / _WIDEST)
    # The tensor's range stays what it was, and with it all that hangs on its scale.
    factors *= np.max(largest / factors) / largest.max()
    return factors.astype(np.float32) if factors.max() > _LIKE * factors.min() else None


def _by_input(node: ir.Node) -> Floats:
    """A reader's weights as [channel read, the rest]."""
    weight, place = constant(node.inputs[1]), weight_of(node)
    assert weight is not None
    assert place is not None
    if node.op_type != "Conv":
        return np.moveaxis(weight, place.rows, 0)
    group = node.attributes.get_int("group", 1)
    split = weight.reshape(group, weight.shape[0] // group, weight.shape[1], -1)
    return np.swapaxes(split, 1, 2).reshape(group * weight.shape[1], -1)


def _apply(graph: ir.Graph, group: Group, factors: Floats) -> None:
    for node in group.producers:
        _divide(graph, node, factors)
    for node in group.readers:
        weight, place = constant(node.inputs[1]), weight_of(node)
        assert weight is not None
        assert place is not None
        if node.op_type == "Conv":
            count = node.attributes.get_int("group", 1)
            split = weight.reshape(count, weight.shape[0] // count, weight.shape[1], -1)
            scaled = (split * factors.reshape(count, 1, -1, 1)).reshape(weight.shape)
        else:
            scaled = weight * factors.reshape(along(place.rows, weight.ndim))
        _replace(graph, node, 1, scaled)
    for node in group.shifts:
        rank, axis = len(node.outputs[0].shape or ()), group.axes[node.outputs[0]]
        for index, value in enumerate(node.inputs):
            if (array := constant(value)) is not None:
                _replace(graph, node, index, array / factors.reshape(along(axis, rank)))


def _divide(graph: ir.Graph, node: ir.Node, factors: Floats) -> None:
    """What the node makes, by its own constants."""
    place = weight_of(node)
    for index, value in enumerate(node.inputs):
        array = constant(value)
        if index == 0 or array is None or (node.op_type == "BatchNormalization" and index > 2):
            continue
        if place is not None and index == place.index:
            assert place.axis is not None
            _replace(graph, node, index, array / factors.reshape(along(place.axis, array.ndim)))
        else:
            _replace(graph, node, index, array / factors)


def _replace(graph: ir.Graph, node: ir.Node, index: int, array: NDArray[Any]) -> None:
    old = node.inputs[index]
    assert old is not None
    tensor = ir.tensor(np.ascontiguousarray(array, np.float32))
    node.replace_input_with(index, add_initializer(graph, f"{old.name}_equalized", tensor))
    if not old.uses() and old.is_initializer():
        del graph.initializers[str(old.name)]


def _closeness(model: ir.Model, changed: ir.Model, sample: Sample, folder: Path) -> float:
    """How far the two float models agree, in dB."""
    path = folder / "equalized.onnx"
    results = []
    for each in (model, changed):
        ir.save(each, path)
        session = cpu_session(path)
        names = [output.name for output in session.get_outputs()]
        results.append(dict(zip(names, session.run(None, dict(sample)), strict=True)))
    path.unlink()
    return compare(results[:1], results[1:]).lowest_db
