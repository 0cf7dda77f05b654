"""The package format: one folder with a manifest, written whole or not at all, read with suspicion.

Needs nothing but Python itself: what runs a package on a device must be able to open it.
"""

from hexport.packaging.archive import pack, read_packed, unpack
from hexport.packaging.manifest import Manifest
from hexport.packaging.reading import Package, open_package
from hexport.packaging.writing import artefact, package_aside, write_manifest

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
