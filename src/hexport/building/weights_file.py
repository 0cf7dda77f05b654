"""Several models beside one file of weights, in which each tensor is stored once.

The model for the CPU and those of the buckets hold mostly the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

FILE = "weights.data"
_LEAST = 1024
"""Bytes; smaller tensors stay in the models, where shapes and scales are looked for."""
_ALIGNED = 4096
"""Where tensors begin, so that they can be mapped into memory."""


def write_models(models: Mapping[str, Path], folder: Path) -> list[str]:
    """Write every model to ``folder`` under its name; gives the names of all files written."""
    places: dict[str, int] = {}
    length = 0
    with (folder / FILE).open("wb") as file:
        for name, path in models.items():
            model = ir.load(path)
            for value in model.graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.dtype is ir.DataType.STRING or tensor.nbytes < _LEAST:
                    continue
                content = tensor.tobytes()
                key = hashlib.sha256(content).hexdigest()
                if key not in places:
                    file.write(b"\0" * (-length % _ALIGNED))
                    places[key] = length + -length % _ALIGNED
                    file.write(content)
                    length = places[key] + len(content)
                value.const_value = ir.ExternalTensor(
                    FILE,
                    places[key],
                    len(content),
                    tensor.dtype,
                    shape=tensor.shape,  # type: ignore[arg-type]
                    name=str(value.name),
                    base_dir=folder,
                )
            ir.save(model, folder / name)
    return [*models, FILE]
