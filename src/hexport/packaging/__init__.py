"""The package format: one folder with a manifest, written whole or not at all, read with suspicion.

Needs nothing but Python itself: what runs a package on a device must be able to open it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hexport.packaging.manifest import Manifest
from hexport.packaging.reading import Package, open_package
from hexport.packaging.writing import artefact, package_aside, write_manifest

if TYPE_CHECKING:
    from hexport.packaging.archive import pack as pack
    from hexport.packaging.archive import read_packed as read_packed
    from hexport.packaging.archive import unpack as unpack

__all__ = [
    "Manifest",
    "Package",
    "artefact",
    "open_package",
    "pack",
    "package_aside",
    "read_packed",
    "unpack",
    "write_manifest",
]
_ARCHIVE = ("pack", "read_packed", "unpack")
"""Loaded when first used: few who open a package need what reads zips."""


def __getattr__(name: str) -> Any:
    if name not in _ARCHIVE:
        raise AttributeError(f"module 'hexport.packaging' has no attribute {name!r}")
    return getattr(importlib.import_module("hexport.packaging.archive"), name)
