"""Models for a while on disk, with their weights in a file beside them.

The weights are written one by one and mapped when read. In one message with the nodes they would be in memory
twice more while it is written, and once more while it is parsed; and a message ends at 2 GB.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from hexport.model.external import LEAST_OUTSIDE


def save_with_weights_beside(model: ir.Model, path: Path) -> None:
    """Write ``path``, and ``path``.data for what is large."""
    ir.save(model, path, external_data=_beside(path).name, size_threshold_bytes=LEAST_OUTSIDE)


def remove_with_weights(path: Path) -> None:
    """Remove both; a model without large weights has no other file."""
    path.unlink()
    _beside(path).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")
