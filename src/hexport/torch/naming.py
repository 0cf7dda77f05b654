"""Which names of models are PyTorch's: ``MODULE:FACTORY``, ``path/to/file.py:FACTORY``, ``model.pt2``."""

from __future__ import annotations

import re
from pathlib import Path

from hexport.zoo.models import PREFIX

_FACTORY = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILES = (".onnx", ".pt2", ".pt", ".pth", ".pte", ".npz", ".bin", ".zip")
"""A name that ends so is a file, there or not: ``C:model.onnx`` is a place on a drive."""
PROGRAM = ".pt2"
PICKLES = (".pt", ".pth", ".ckpt", ".pkl")


def split_factory(text: str) -> tuple[str, str] | None:
    """Module or file, and the factory in it; None: it is no such name."""
    source, colon, factory = text.rpartition(":")
    if (
        not colon
        or text.startswith(PREFIX)
        or text.lower().endswith(_FILES)
        or not _FACTORY.fullmatch(factory)
    ):
        return None
    if source.lower().endswith(".py"):
        return source, factory
    return (source, factory) if _FACTORY.fullmatch(source) else None


def is_torch_name(text: str) -> bool:
    """Whether PyTorch is needed to open it. A file that is there under this very name is not asked about."""
    suffix = Path(text).suffix.lower()
    if suffix == PROGRAM or suffix in PICKLES:
        return True
    return split_factory(text) is not None and not Path(text).exists()
