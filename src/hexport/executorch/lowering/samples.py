"""Calibration samples on their way to the worker: what ``hexport quantize`` takes, checked, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexport.executorch.lowering.requests import DescribeReply
from hexport.model.graph import Graph, TensorType
from hexport.quantization.data import CalibrationData, open_calibration

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Calibration:
    """Samples as files."""

    folder: Path
    count: int
    description: str
    notes: tuple[str, ...]


def write_calibration(
    source: object,
    program: DescribeReply,
    shapes: Shapes,
    folder: Path,
    preprocess: Any = None,
    limit: int | None = None,
) -> Calibration:
    """Every sample of ``source`` in ``folder``; one is in memory at a time."""
    if isinstance(source, CalibrationData):
        return _write(source, program, folder)
    inputs = {one.name: TensorType(one.dtype, one.dims) for one in program.inputs}
    sizes = {one.name: tuple(shapes.get(one.name, one.example)) for one in program.inputs}
    graph = Graph((), inputs, {}, {})
    with open_calibration(source, graph, sizes, {}, preprocess=preprocess, limit=limit) as data:
        return _write(data, program, folder)


def _write(data: CalibrationData, program: DescribeReply, folder: Path) -> Calibration:
    folder.mkdir()
    count = 0
    for sample in data:
        np.savez(folder / f"{count}.npz", *(np.asarray(sample[one.name]) for one in program.inputs))
        count += 1
    return Calibration(folder, count, f"{data.description}, {count} sample(s)", data.notes)
