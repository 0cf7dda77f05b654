"""The inputs that a build works with: what proves, what calibrates, what verifies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import zoo
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
KEPT = 3
"""Samples that are looked at one by one: those, and one more that padding is proved on."""


@dataclass(frozen=True)
class Inputs:
    """Samples at one bucket's sizes; frozen inputs are among them."""

    data: CalibrationData | None
    """None: prepare finds its own to prove changes on."""
    digest: str
    """Of the data: what depends on samples is kept by it, so that nobody has to make them to find it."""
    find: Callable[[], tuple[Sample, ...]]
    """Makes the samples: the zoo's own take longer than all else in a build that finds its results kept."""
    frozen: Mapping[str, NDArray[np.generic]]
    real: bool

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """A few, ``KEPT`` at most."""
        return self.find()

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
    preprocess: str | Path | None,
    limit: int | None,
) -> Iterator[Inputs]:
    """The user's own, the zoo's, or random ones."""

    def find(model: str) -> tuple[Sample, ...]:
        found = find_samples(model, graph, sizes.shapes, frozen, None)
        return (found if found.real else _with_open_masks(found, graph, frozen)).values

    if calib is None:
        yield Inputs(None, _digest_of_none(name), lambda: find(name), frozen, _is_zoos(name, sizes))
        return
    from hexport.quantization.data import open_calibration

    with open_calibration(
        calib, graph, sizes.shapes, frozen, preprocess=preprocess, limit=limit, fill=fill
    ) as data:
        if str(calib).startswith(PREFIX):
            # The zoo has inputs that no step has seen.
            yield Inputs(data, data.fingerprint, lambda: find(str(calib)), frozen, True)
            return
        # The last ones: changes are proved on the first, and most of what is fitted is fitted to those.
        last: deque[Any] = deque(data, maxlen=KEPT)
        yield Inputs(data, data.fingerprint, lambda: tuple(last), frozen, True)


def _is_zoos(name: str, sizes: Sizes) -> bool:
    """Whether the zoo has real inputs of these sizes."""
    return name.startswith(PREFIX) and zoo.entry(name.removeprefix(PREFIX)).input_shapes == sizes.shapes


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
