"""A model by name, as an ONNX file on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hexport.zoo.catalogue import entry
from hexport.zoo.fetch import ensure, place, tell

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "zoo:"


def get(name: str, *, say: Callable[[str], None] = tell) -> Path:
    """The ONNX file of a model, fetched or exported if the cache does not have it.

    ``say`` is told what takes time: a download, an export, another process that is waited for.
    """
    model = entry(name)
    if model.exported:
        from hexport.zoo.exporter import export

        return export(model, say)
    (path,) = ensure([model.source], say)
    return path


def present(name: str) -> bool:
    """Whether the cache has a model already. Only looked for, not checked: ``get`` does that."""
    model = entry(name)
    if model.exported:
        from hexport.zoo.exporter import place_of_export

        return place_of_export(model).is_file()
    return place(model.source).is_file()


def resolve(model: str | Path, *, say: Callable[[str], None] = tell) -> Path:
    """The file of a model: ``"zoo:NAME"`` is fetched if need be, anything else is a path already."""
    if isinstance(model, str) and model.startswith(PREFIX):
        return get(model.removeprefix(PREFIX), say=say)
    return Path(model)
