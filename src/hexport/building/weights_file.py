"""Several models beside one file of weights, in which each tensor is stored once.

The model for the CPU and those of the buckets hold mostly the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from hexport.building.assembling import FILE

_LEAST = 1024
"""Bytes; smaller tensors stay in the models, where shapes and scales are looked for."""
_ALIGNED = 4096
"""Where tensors begin, so that they can be mapped into memory."""


def write_models(models: Mapping[str, Path], folder: Path) -> None:
    """Write every model to ``folder`` under its name."""
    places: dict[str, int] = {}
    length = 0
    with (folder / FILE).open("wb") as file:
        for name, path in models.items():
            model = ir.load(path)
            for value in (value for graph in model.graphs() for value in graph.initializers.values()):
                tensor = value.const_value
                if tensor is None or tensor.dtype is ir.DataType.STRING:
                    continue
                if tensor.nbytes < _LEAST:
                    # Out of the file that it may lie in, which does not come along.
                    value.const_value = ir.tensor(tensor.numpy(), tensor.dtype, name=str(value.name))
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
    if not length:
        (folder / FILE).unlink()
