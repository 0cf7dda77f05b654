"""The inputs that a build works with: what proves, what calibrates, what verifies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.building.buckets import Sizes
from hexport.model import Model
from hexport.packaging.manifest import Number
from hexport.preparation.samples import COUNT, find_samples
from hexport.quantization.data import CalibrationData, open_calibration
from hexport.quantization.readying import write_proofs
from hexport.zoo.models import PREFIX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hexport.backend.sample_files import Sample

VERIFYING = 2
"""Samples that a bucket is verified on."""


@dataclass(frozen=True)
class Inputs:
    """Samples at one bucket's sizes; frozen inputs are among them."""

    data: CalibrationData | None
    proofs: Path | None
    """What changes to the model are proved on; None: prepare finds its own."""
    proofs_digest: str
    samples: tuple[Sample, ...]
    """A few: what is verified on comes from them."""
    real: bool

    @property
    def verifying(self) -> tuple[Sample, ...]:
        """The simulator takes up to half a minute for each."""
        return self.samples[-VERIFYING:]


@contextmanager
def open_inputs(
    source: Model,
    name: str,
    calib: object,
    sizes: Sizes,
    frozen: Mapping[str, NDArray[np.generic]],
    fill: Mapping[str, Mapping[int, Number]],
    preprocess: Path | None,
    limit: int | None,
    folder: Path,
) -> Iterator[Inputs]:
    """The user's own, the zoo's, or random ones."""
    graph = source.graph
    if calib is None:
        found = find_samples(name, graph, sizes.shapes, frozen, None)
        yield Inputs(None, None, _digest_of_none(name), found.values, found.real)
        return
    with open_calibration(
        calib, graph, sizes.shapes, frozen, preprocess=preprocess, limit=limit, fill=fill
    ) as data:
        proofs = folder / f"{sizes.name}.proofs.npz"
        free = [name for name in graph.inputs if name not in frozen]
        digest = write_proofs(data, free, proofs)
        # The last ones: changes are proved on the first, and most of what is fitted is fitted to those.
        last: deque[Any] = deque(data, maxlen=VERIFYING)
        if str(calib).startswith(PREFIX):
            # The zoo has inputs that no step has seen.
            last = deque(find_samples(str(calib), graph, sizes.shapes, frozen, None).values)
        yield Inputs(data, proofs, digest, tuple(last), True)


def _digest_of_none(name: str) -> str:
    """prepare takes the zoo's inputs or random ones by itself, always the same."""
    return f"{name if name.startswith(PREFIX) else 'random'} {COUNT}"
