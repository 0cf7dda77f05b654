"""Every tensor's range on real inputs, and what of it fp16 cannot hold.

The model runs in fp32 on the CPU with its tensors exposed as outputs, a part of them at a time, so that
memory stays bounded; of each array only the range is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from math import inf, isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.backend.running import run_on_cpu
from hexport.rewrite.exposing import exposing
from hexport.rewrite.precision.fp16 import LARGEST, SMALLEST, SMALLEST_NORMAL
from hexport.rewrite.values import constant, fixed_shape, scalar
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 32_000_000
"""Numbers that one run gives back: 128 MB."""
_UNKNOWN = 1_000_000
"""What a tensor of unknown shape counts as."""
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Range:
    """The finite numbers that a tensor held."""

    low: float
    high: float
    smallest: float
    """The smallest magnitude above 0; 0 if all were 0."""
    infinite: bool = False
    nan: bool = False

    @property
    def magnitude(self) -> float:
        """The largest, of either sign."""
        return max(abs(self.low), abs(self.high))

    def joined(self, other: Range) -> Range:
        """The range of both."""
        above_zero = [r.smallest for r in (self, other) if r.smallest > 0]
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            min(above_zero, default=0.0),
            self.infinite or other.infinite,
            self.nan or other.nan,
        )


class Danger(Enum):
    """What fp16 does to a tensor or constant."""

    OVERFLOW = "overflow"
    """It is larger than 65504, made from numbers that are not."""
    UNDERFLOW = "underflow"
    """It is never 0 in fp32, and all of it is near or below the smallest fp16 number."""
    LOST_FLOOR = "lost floor"
    """A constant that keeps Log, Sqrt or a division away from 0 is itself 0 in fp16."""
    GIANT_CONSTANT = "giant constant"
    """A constant larger than 65504, mostly a mask's stand-in for −∞."""


@dataclass(frozen=True)
class Finding:
    danger: Danger
    tensor: str
    op: str
    """The operator that makes the tensor, or takes the constant."""
    node: str
    """Its name."""
    value: float


def measure_ranges(
    model: ir.Model,
    samples: Sequence[Mapping[str, NDArray[np.generic]]],
    *,
    folder: Path | None = None,
    limits: Limits | None = None,
) -> dict[str, Range]:
    """The range of every float tensor of the main graph that is not a constant, by name.

    ``folder`` is for files on the way, and where the model's external data is found, if it has any.
    """
    ranges: dict[str, Range] = {}
    for names in _chunks(model, len(samples)):
        with _exposing(model, names, folder) as path:
            for outputs in run_on_cpu(path, samples, optimize=False, limits=limits).outputs:
                for name in names:
                    found = range_of(outputs[name])
                    ranges[name] = found.joined(ranges[name]) if name in ranges else found
    for name in (str(value.name) for value in model.graph.inputs if value.dtype in _FLOATS):
        # An input with a default value may be left out.
        for sample in (sample for sample in samples if name in sample):
            found = range_of(sample[name])
            ranges[name] = found.joined(ranges[name]) if name in ranges else found
    return ranges


def range_of(array: NDArray[np.generic]) -> Range:
    """One array's range."""
    import numpy as np

    numbers = np.asarray(array, np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    sizes = np.abs(finite)
    return Range(
        float(finite.min(initial=inf)) if finite.size else 0.0,
        float(finite.max(initial=-inf)) if finite.size else 0.0,
        float(sizes[sizes > 0].min(initial=inf)) if sizes.any() else 0.0,
        infinite=bool(np.isinf(numbers).any()),
        nan=bool(np.isnan(numbers).any()),
    )


def _chunks(model: ir.Model, samples: int) -> Iterable[list[str]]:
    names: list[str] = []
    size = 0
    for node in model.graph:
        for value in node.outputs:
            if not value.name or constant(value) is not None or value.dtype not in (*_FLOATS, None):
                continue
            shape = fixed_shape(value)
            count = samples * (_UNKNOWN if shape is None else prod(shape))
            if names and size + count > _CHUNK:
                yield names
                names, size = [], 0
            names.append(value.name)
            size += count
    if names:
        yield names


@contextmanager
def _exposing(model: ir.Model, names: list[str], folder: Path | None) -> Iterator[Path]:
    with temporary_folder() as own:
        path = (folder or own) / "ranges.onnx"
        ir.save(exposing(model, names), path)
        yield path


def find_dangers(model: ir.Model, ranges: Mapping[str, Range]) -> tuple[Finding, ...]:
    """What fp16 cannot hold, each said once: where it begins."""
    found: list[Finding] = []
    for node in model.graph:
        found += _of_constants(node)
        inputs = [ranges[v.name] for v in node.inputs if v is not None and v.name and v.name in ranges]
        for value in node.outputs:
            measured = ranges.get(value.name or "")
            if measured is not None:
                found += _of_range(node, str(value.name), measured, inputs)
    return tuple(found)


def _of_range(node: ir.Node, name: str, measured: Range, inputs: Sequence[Range]) -> Iterable[Finding]:
    if measured.magnitude > LARGEST and all(r.magnitude <= LARGEST for r in inputs):
        yield Finding(Danger.OVERFLOW, name, node.op_type, str(node.name), measured.magnitude)
    elif 0 < measured.magnitude < SMALLEST_NORMAL and all(r.magnitude >= SMALLEST_NORMAL for r in inputs):
        yield Finding(Danger.UNDERFLOW, name, node.op_type, str(node.name), measured.magnitude)


def _of_constants(node: ir.Node) -> Iterable[Finding]:
    floors = node.op_type in ("Clip", "Max", "Add") and any(
        user.op_type in ("Log", "Sqrt", "Div", "Reciprocal", "Pow")
        for output in node.outputs
        for user, _ in output.uses()
    )
    for value in node.inputs:
        array = constant(value)
        if value is None or array is None or array.dtype.kind != "f" or not array.size:
            continue
        number = scalar(value)
        if floors and number is not None and 0 < abs(number) < SMALLEST:
            yield Finding(Danger.LOST_FLOOR, str(value.name), node.op_type, str(node.name), number)
        largest = max(float(array.max()), -float(array.min()), key=abs)
        # Clip(·, f, +∞) is how exporters write "no upper bound".
        if abs(largest) > LARGEST and not (node.op_type == "Clip" and not isfinite(largest)):
            signed = float(array.max()) if abs(float(array.max())) == abs(largest) else float(array.min())
            yield Finding(Danger.GIANT_CONSTANT, str(value.name), node.op_type, str(node.name), signed)
