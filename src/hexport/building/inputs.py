"""The inputs that a build works with: what proves, what calibrates, what verifies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.building.buckets import Sizes
from hexport.model import Graph
from hexport.packaging.manifest import Number
from hexport.preparation.samples import COUNT, Samples, find_samples
from hexport.zoo.models import PREFIX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample
    from hexport.quantization.data import CalibrationData

VERIFYING = 2
"""Samples that a bucket is verified on."""


@dataclass(frozen=True)
class Inputs:
    """Samples at one bucket's sizes; frozen inputs are among them."""

    data: CalibrationData | None
    """None: prepare finds its own to prove changes on."""
    digest: str
    """Of the data."""
    samples: tuple[Sample, ...]
    """A few: what is verified on comes from them."""
    frozen: Mapping[str, NDArray[np.generic]]
    real: bool

    @property
    def verifying(self) -> tuple[Sample, ...]:
        """The simulator takes up to half a minute for each."""
        return self.samples[-VERIFYING:]


@contextmanager
def open_inputs(
    graph: Graph,
    name: str,
    calib: object,
    sizes: Sizes,
    frozen: Mapping[str, NDArray[np.generic]],
    fill: Mapping[str, Mapping[int, Number]],
    preprocess: Path | None,
    limit: int | None,
) -> Iterator[Inputs]:
    """The user's own, the zoo's, or random ones."""
    if calib is None:
        found = find_samples(name, graph, sizes.shapes, frozen, None)
        values = found.values if found.real else _with_open_masks(found, graph, frozen).values
        yield Inputs(None, _digest_of_none(name), values, frozen, found.real)
        return
    from hexport.quantization.data import open_calibration

    with open_calibration(
        calib, graph, sizes.shapes, frozen, preprocess=preprocess, limit=limit, fill=fill
    ) as data:
        # The last ones: changes are proved on the first, and most of what is fitted is fitted to those.
        last: deque[Any] = deque(data, maxlen=VERIFYING)
        if str(calib).startswith(PREFIX):
            # The zoo has inputs that no step has seen.
            last = deque(find_samples(str(calib), graph, sizes.shapes, frozen, None).values)
        yield Inputs(data, data.fingerprint, tuple(last), frozen, True)


def _with_open_masks(found: Samples, graph: Graph, frozen: Mapping[str, Any]) -> Samples:
    """Masks of ones: a random one may hide everything, and what comes of nothing means nothing."""
    import numpy as np

    masks = [
        name
        for name, tensor in graph.inputs.items()
        if "mask" in name.lower() and name not in frozen and not tensor.dtype.startswith("float")
    ]
    values = tuple({**s, **{name: np.ones_like(s[name]) for name in masks}} for s in found.values)
    return replace(found, values=values)


def _digest_of_none(name: str) -> str:
    """prepare takes the zoo's inputs or random ones by itself, always the same."""
    return f"{name if name.startswith(PREFIX) else 'random'} {COUNT}"
