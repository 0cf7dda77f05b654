"""Tensors on their way to a worker and back: one npz file a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.backend.requests import SampleFiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Sample = Mapping[str, NDArray[np.generic]]


def write_samples(samples: Sequence[Sample], folder: Path) -> SampleFiles:
    """The samples as files in ``folder``, and where their results shall go."""
    import numpy as np

    names = tuple(samples[0]) if samples else ()
    inputs, outputs = folder / "in", folder / "out"
    inputs.mkdir()
    outputs.mkdir()
    for i, sample in enumerate(samples):
        np.savez(inputs / f"{i}.npz", *(np.asarray(sample[name]) for name in names))
    return SampleFiles(str(inputs), str(outputs), len(samples), names)


def read_results(files: SampleFiles, names: Sequence[str]) -> tuple[dict[str, NDArray[np.generic]], ...]:
    """What the worker wrote, sample by sample."""
    return tuple(_load(Path(files.outputs, f"{i}.npz"), names) for i in range(files.count))


def _load(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"arr_{i}"] for i, name in enumerate(names)}
