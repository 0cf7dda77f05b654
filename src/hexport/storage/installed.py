"""Versions of installed packages, read off the names of their folders.

``importlib.metadata`` reads and parses a file for each, and takes as long to load as a build that finds all
of its steps kept takes to write the package.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache

from hexport.toolchain.interpreter import in_force

_INFO = ".dist-info"
_NATIVE = ("onnxruntime", "onnxruntime-qnn")
"""What workers use; with a toolchain in force, the toolchain's."""


def installed_version(name: str) -> str:
    """The version of a distribution, of native ones where native code runs; empty: it is not installed."""
    chosen = in_force()
    if chosen is not None and name in _NATIVE:
        return chosen.packages.get(name, "")
    return _found().get(_plain(name)) or _asked(name)


@cache
def _found() -> dict[str, str]:
    """Of every distribution with a folder ``NAME-VERSION.dist-info``; the first on the path counts."""
    versions: dict[str, str] = {}
    for place in sys.path:
        try:
            names = [entry.name for entry in os.scandir(place or os.curdir)]
        except OSError:
            continue  # an archive, or nothing
        for entry in names:
            if entry.endswith(_INFO):
                name, _, version = entry.removesuffix(_INFO).rpartition("-")
                versions.setdefault(_plain(name), version)
    return versions


def _asked(name: str) -> str:
    """However else it may be installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
