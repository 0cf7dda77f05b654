"""Samples by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample


def samples_digest(samples: Sequence[Sample]) -> str:
    """Names, types, shapes and numbers."""
    total = hashlib.sha256()
    for sample in samples:
        for name, array in sorted(sample.items()):
            total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()
