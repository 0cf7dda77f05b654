"""Several models beside one file of weights, in which each tensor is stored once.

The model for the CPU and those of the buckets hold mostly the same weights. Some differ in the order of
their axes only: a Gemm of the NPU has the matrix of the original's MatMul turned. Those are stored once, too:

    Gemm(x, Wᵀ)          Gemm(x, Transpose(W))

ONNX Runtime computes the Transpose of a constant when it loads the model, before anything is compiled: the
NPU's graph has the same operators, and its results are the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.building.assembling import FILE

_LEAST = 1024
"""Bytes; smaller tensors stay in the models, where shapes and scales are looked for."""
_LEAST_TURNED = 64 * 1024
"""Bytes; below this a Transpose more is not worth it."""
_MOST_AXES = 4
_ALIGNED = 4096
"""Where tensors begin, so that they can be mapped into memory."""

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)

Sizes = tuple[int, ...]


def write_models(models: Mapping[str, Path], folder: Path) -> None:
    """Write every model to ``folder`` under its name."""
    with (folder / FILE).open("wb") as file:
        weights = _Weights(file, folder)
        for name, path in models.items():
            model = ir.load(path)
            graphs = list(model.graphs())
            # With bodies it may have to be compiled with nothing computed beforehand: compiling/bodies.py.
            may_turn = len(graphs) == 1
            for graph in graphs:
                for value in list(graph.initializers.values()):
                    _move_out(value, graph, weights, may_turn=may_turn)
            ir.save(model, folder / name)
    if not weights.length:
        (folder / FILE).unlink()


def _move_out(value: ir.Value, graph: ir.Graph, weights: _Weights, *, may_turn: bool) -> None:
    tensor, name = value.const_value, str(value.name)
    if tensor is None or tensor.dtype is ir.DataType.STRING:
        return
    if tensor.nbytes < _LEAST:
        # Out of the file that it may lie in, which does not come along.
        value.const_value = ir.tensor(tensor.numpy(), tensor.dtype, name=name)
        return
    fixed = may_turn and not value.is_graph_output() and value not in graph.inputs
    turned = weights.find_turned(tensor) if fixed else None
    if turned is None:
        value.const_value = weights.store(tensor, _sizes(tensor), name)
    else:
        stored = weights.store(turned.stored, turned.shape, f"{name}_turned")
        _put_transpose(value, graph, stored, turned.axes)


def _put_transpose(value: ir.Value, graph: ir.Graph, stored: ir.ExternalTensor, axes: Sizes) -> None:
    """What reads ``value`` reads the Transpose of ``stored`` from now on, under the same name."""
    name = str(value.name)
    source = ir.Value(
        name=stored.name, const_value=stored, type=ir.TensorType(stored.dtype), shape=ir.Shape(stored.shape)
    )
    node = ir.node("Transpose", [source], {"perm": axes}, name=f"{name}_turn")
    (output,) = node.outputs
    output.type, output.shape = value.type, value.shape
    ir.convenience.replace_all_uses_with(value, output)
    del graph.initializers[name]
    output.name = name
    graph.register_initializer(source)
    graph.insert_before(graph[0], node)


@dataclass(frozen=True)
class _Turned:
    """A tensor of the file, the shape to read it in, and the order of its axes that is wanted."""

    stored: ir.TensorProtocol
    shape: Sizes
    axes: Sizes


@dataclass
class _Weights:
    """The file as it grows."""

    file: BinaryIO
    folder: Path
    length: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    """SHA-256 of a tensor's bytes -> where it is."""
    _alike: dict[object, list[ir.TensorProtocol]] = field(default_factory=dict)
    """What does not depend on the order of the axes -> tensors in the file that have it."""

    def store(self, tensor: ir.TensorProtocol, shape: Sizes, name: str) -> ir.ExternalTensor:
        """The tensor as a place in the file, in which it is written unless it is there."""
        content = tensor.tobytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self._places:
            self.file.write(b"\0" * (-self.length % _ALIGNED))
            self._places[key] = self.length + -self.length % _ALIGNED
            self.file.write(content)
            self.length = self._places[key] + len(content)
            if (likeness := _likeness(tensor)) is not None:
                self._alike.setdefault(likeness, []).append(tensor)
        return ir.ExternalTensor(
            FILE,
            self._places[key],
            len(content),
            tensor.dtype,
            shape=ir.Shape(shape),
            name=name,
            base_dir=self.folder,
        )

    def find_turned(self, tensor: ir.TensorProtocol) -> _Turned | None:
        """What the file has of ``tensor``, but for the order of its axes and axes of one; None: nothing."""
        likeness = _likeness(tensor)
        if likeness is None or hashlib.sha256(tensor.tobytes()).hexdigest() in self._places:
            return None
        wanted = _bits(tensor).squeeze()
        for other in self._alike.get(likeness, ()):
            bits = _bits(other).squeeze()
            for axes in permutations(range(wanted.ndim)):
                if np.array_equal(bits.transpose(axes), wanted):
                    return _with_ones(other, bits.shape, axes, _sizes(tensor))
        return None


def _with_ones(other: ir.TensorProtocol, shape: Sizes, axes: Sizes, wanted: Sizes) -> _Turned:
    """Axes of one change no byte: they are put behind the others, and taken from there."""
    long, ones = iter(axes), iter(range(len(shape), len(shape) + wanted.count(1)))
    order = tuple(next(ones) if size == 1 else next(long) for size in wanted)
    return _Turned(other, (*shape, *(1,) * wanted.count(1)), order)


def _likeness(tensor: ir.TensorProtocol) -> object:
    """The same for all orders of a tensor's axes; None: it is not looked for in another order."""
    long = sorted(size for size in _sizes(tensor) if size != 1)
    if tensor.nbytes < _LEAST_TURNED or not 1 < len(long) <= _MOST_AXES:
        return None
    if tensor.dtype not in _FLOATS:
        return None  # integers are of one bucket, and the other buckets have the same bytes
    return tensor.dtype, tuple(long), int(_bits(tensor).sum(dtype=np.uint64))


def _sizes(tensor: ir.TensorProtocol) -> Sizes:
    return tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]


def _bits(tensor: ir.TensorProtocol) -> NDArray[Any]:
    """Its numbers as whole ones: NaN is equal to itself in here."""
    array = tensor.numpy()
    return array.view(f"u{array.dtype.itemsize}")
