"""A model by name, as an ONNX file on this machine: the zoo's, PyTorch's, or a file as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.zoo.catalogue import entry
from hexport.zoo.fetch import ensure, place, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from hexport.torch.description import TorchModel

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


@dataclass(frozen=True)
class Located:
    """A model's file, and what came with it."""

    path: Path
    notes: tuple[str, ...] = ()
    """How the file came to be, where that is worth a word."""
    calib: object = None
    """Samples of its own, to measure ranges on."""
    metric: Any = None
    max_drop: float | None = None
    example: Mapping[str, Any] = field(default_factory=dict)
    """One set of inputs that it takes."""


def locate(model: str | Path | TorchModel, *, say: Callable[[str], None] = tell) -> Located:
    """What a model's name stands for: the one place where names become files.

    ``"zoo:NAME"`` is fetched if need be; ``"MODULE:FACTORY"``, ``"file.py:FACTORY"`` and ``.pt2`` files are
    exported from PyTorch; anything else is a path already.
    """
    if isinstance(model, str) and model.startswith(PREFIX):
        return Located(get(model.removeprefix(PREFIX), say=say))
    from hexport.torch.opening import is_torch, open_torch

    if is_torch(model):
        opened = open_torch(model, say)
        return Located(
            opened.path, opened.notes, opened.calib, opened.metric, opened.max_drop, opened.example
        )
    assert isinstance(model, (str, Path))
    return Located(Path(model))


def resolve(model: str | Path | TorchModel, *, say: Callable[[str], None] = tell) -> Path:
    """The file alone; what there is to tell about it is told."""
    found = locate(model, say=say)
    for note in found.notes:
        say(f"{model}: {note}")
    return found.path


def stem_of(model: str) -> str:
    """What files made from a model are called after: its name in the zoo, its factory, or its file."""
    if model.startswith(PREFIX):
        return model.removeprefix(PREFIX)
    from hexport.torch.naming import is_torch_name, split_factory

    parts = split_factory(model)
    return parts[1] if parts is not None and is_torch_name(model) else Path(model).stem
