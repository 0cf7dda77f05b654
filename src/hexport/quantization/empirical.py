"""Bias correction by measurement: what each layer of the quantised model gives beside the float model's.

x ──► Conv ──► Add(correction) ──► Q ──► DQ ──► …          the corrections are inputs: one session for all

Rounded activations and what cuts them shift means as well, and a layer passes on what came to it; analytic
correction (``rounding.py``) sees rounded weights only. Layers go in the order of the graph, each after those
before it were corrected: taken together, each would take back the same error once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.axes import along
from hexport.model.reference import cpu_session
from hexport.quantization.htp_sums import htp_sums
from hexport.quantization.initializers import add_initializer
from hexport.quantization.observing import Sample, chunks, exposed_session
from hexport.quantization.weights import Layer, LayerIntegers
from hexport.quantization.weights_as_floats import weights_as_floats

Means = Mapping[str, NDArray[Any]]
"""Of every layer, [sample, channel]."""


def float_means(
    model: ir.Model, layers: Mapping[str, Layer], samples: Iterable[Sample], folder: Path
) -> dict[str, NDArray[Any]]:
    """The mean of each channel that the layers of the float model give, for each sample."""
    makers = {str(layer.node.outputs[0].name): layer for layer in layers.values()}
    found: dict[str, NDArray[Any]] = {}
    for number, chunk in enumerate(chunks(model)):
        names = [name for name in chunk if name in makers]
        if not names:
            continue
        session = exposed_session(model, names, folder / f"means{number}.onnx")
        rows: dict[str, list[NDArray[Any]]] = defaultdict(list)
        for sample in samples:
            for name, array in zip(names, session.run(names, dict(sample)), strict=True):
                rows[name].append(_channel_means(makers[name], array))
        found |= {makers[name].name: np.array(each) for name, each in rows.items()}
    return found


def measure_biases(
    quantised: ir.Model,
    layers: Mapping[str, Layer],
    integers: Mapping[str, LayerIntegers],
    expected: Means,
    samples: Iterable[Sample],
    folder: Path,
) -> dict[str, LayerIntegers]:
    """``integers`` with biases that bring the mean of every layer's results to what is ``expected``."""
    uses = Counter(layer.shared for layer in layers.values())
    # The steps of a recurrence are hundreds of layers, and have their biases in common like their weights.
    able = {
        name: layers[name]
        for name, found in integers.items()
        if found.bias is not None
        and not found.encoding.block
        and name in expected
        and uses[layers[name].shared] == 1
    }
    if not able:
        return dict(integers)
    corrections = {name: np.zeros(expected[name].shape[1], np.float32) for name in able}
    bench = _Bench(quantised, able, samples, folder)
    for names in _levels(quantised, able):
        for name, means in bench.means(names, corrections).items():
            corrections[name] = _correction(expected[name] - means)
    return {name: _shifted(found, corrections.get(name)) for name, found in integers.items()}


def _correction(shifts: NDArray[Any]) -> NDArray[Any]:
    """The mean of [sample, channel], less what may be chance: few samples say little of a mean."""
    count = len(shifts)
    mean = shifts.mean(axis=0)
    if count < 2 or not np.isfinite(shifts).all():
        return np.zeros(mean.shape, np.float32)
    chance = shifts.var(axis=0, ddof=1) / count
    sure = np.maximum(1 - chance / np.maximum(mean**2, np.finfo(np.float64).tiny), 0)
    result: NDArray[Any] = (mean * sure).astype(np.float32)
    return result


def _levels(model: ir.Model, layers: Mapping[str, Layer]) -> list[list[str]]:
    """The layers in the order of the graph; those that do not follow one another together."""
    depth: dict[ir.Node, int] = {}
    found: dict[int, list[str]] = defaultdict(list)
    for node in model.graph:
        makers = (value.producer() for value in node.inputs if value is not None)
        before = max((depth.get(maker, 0) for maker in makers if maker is not None), default=0)
        depth[node] = before
        if str(node.name) in layers:
            depth[node] = before + 1
            found[before].append(str(node.name))
    return [found[level] for level in sorted(found)]


def _shifted(found: LayerIntegers, correction: NDArray[Any] | None) -> LayerIntegers:
    if correction is None or found.bias is None:
        return found
    return replace(found, bias=(found.bias + correction).astype(np.float32))


class _Bench:
    """The quantised model with an addition behind every layer that is measured."""

    def __init__(
        self, model: ir.Model, layers: Mapping[str, Layer], samples: Iterable[Sample], folder: Path
    ) -> None:
        import onnxruntime as ort

        self._layers, self._samples = layers, samples
        path = folder / "corrections.onnx"
        copy = _with_corrections(model, layers)
        with htp_sums(copy), weights_as_floats(copy):
            ir.save(copy, path)
        self._session = cpu_session(path, optimize=False)
        path.unlink()
        self._options = ort.RunOptions()
        # What comes after the layers that are looked at need not be computed.
        self._options.only_execute_path_to_fetches = True

    def means(self, names: Sequence[str], corrections: Means) -> dict[str, NDArray[Any]]:
        """What the layers ``names`` give with the corrections made."""
        given = {_input(name): value for name, value in corrections.items()}
        rows: dict[str, list[NDArray[Any]]] = defaultdict(list)
        for sample in self._samples:
            results = self._session.run([_output(name) for name in names], {**sample, **given}, self._options)
            for name, array in zip(names, results, strict=True):
                rows[name].append(_channel_means(self._layers[name], array))
        return {name: np.array(each) for name, each in rows.items()}


def _channel_means(layer: Layer, array: NDArray[Any]) -> NDArray[Any]:
    axis = _channel_axis(layer, array.ndim)
    others = tuple(i for i in range(array.ndim) if i != axis)
    result: NDArray[Any] = array.mean(axis=others, dtype=np.float64)
    return result


def _channel_axis(layer: Layer, rank: int) -> int:
    return 1 if layer.node.op_type in ("Conv", "ConvTranspose") else rank - 1


def _with_corrections(model: ir.Model, layers: Mapping[str, Layer]) -> ir.Model:
    copy = model.clone()
    sums = [_add_correction(copy.graph, n, layers[str(n.name)]) for n in list(copy.graph) if n.name in layers]
    copy.graph.outputs[:] = sums
    return copy


def _add_correction(graph: ir.Graph, node: ir.Node, layer: Layer) -> ir.Value:
    value, name = node.outputs[0], _input(layer.name)
    rank = len(layer.node.outputs[0].shape or ())
    shape = along(_channel_axis(layer, rank), rank)
    given = ir.val(name, ir.DataType.FLOAT, [None])
    graph.inputs.append(given)
    wanted = add_initializer(graph, f"{name}_shape", ir.tensor(np.array(shape, np.int64)))
    spread = ir.node("Reshape", [given, wanted])
    spread.outputs[0].name = f"{name}_spread"
    added = ir.node("Add", [value, spread.outputs[0]])
    result = added.outputs[0]
    result.name, result.dtype = _output(layer.name), ir.DataType.FLOAT
    users = [(user, index) for user, index in value.uses() if user is not added]
    graph.insert_after(node, [spread, added])
    for user, index in users:
        user.replace_input_with(index, result)
    return result


def _input(name: str) -> str:
    return f"hexport_correction_of_{name}"


def _output(name: str) -> str:
    return f"hexport_corrected_{name}"
