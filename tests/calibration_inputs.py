"""Graphs and samples that the tests of calibration data share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hexport.model.graph import Graph, TensorType
from hexport.quantization.data import CalibrationData, Preprocess, open_calibration

Array = NDArray[Any]
Forms = Mapping[str, tuple[str, tuple[int, ...]]]
ONE: Forms = {"x": ("float32", (1, 4))}
TWO: Forms = {"x": ("float32", (1, 4)), "ids": ("int64", (3,))}


def open_for(
    forms: Forms,
    source: object,
    *,
    frozen: Mapping[str, Array] | None = None,
    preprocess: Preprocess | Path | str | None = None,
    limit: int | None = None,
) -> CalibrationData:
    """Calibration data for a model with these inputs."""
    graph = Graph((), {name: TensorType(dtype, shape) for name, (dtype, shape) in forms.items()}, {}, {})
    shapes = {name: shape for name, (_, shape) in forms.items()}
    return open_calibration(source, graph, shapes, frozen or {}, preprocess=preprocess, limit=limit)


def made(forms: Forms, count: int = 5, seed: int = 0) -> list[dict[str, Array]]:
    """Samples that fit."""
    rng = np.random.default_rng(seed)
    return [
        {name: (rng.normal(size=shape) * 50).astype(dtype) for name, (dtype, shape) in forms.items()}
        for _ in range(count)
    ]


def stacked(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same with the samples on the first axis."""
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


def assert_equal(found: Iterable[Mapping[str, Array]], wanted: list[dict[str, Array]]) -> None:
    """The same samples, types included."""
    listed = list(found)
    assert len(listed) == len(wanted)
    for left, right in zip(listed, wanted, strict=True):
        assert list(left) == list(right)
        for name in right:
            assert left[name].dtype == right[name].dtype
            np.testing.assert_array_equal(left[name], right[name], strict=True)
