"""A Python that has only what the core install brings, for this process's environment and its workers.

What is left out is found in the metadata: every package that hexport's own requirements, without extras, do
not lead to. It is kept from being imported, in children too, because each Python reads the file here first.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

_BLOCKER = """\
import importlib.abc
import sys


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: it is not of the core", name=name)


sys.meta_path.insert(0, Absent())
"""


def core_distributions() -> set[str]:
    """hexport and all that its requirements lead to, on this platform."""
    found: set[str] = set()
    waiting = ["hexport"]
    while waiting:
        name = _plain(waiting.pop())
        if name in found:
            continue
        found.add(name)
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return found


def absent_modules() -> set[str]:
    """Top-level modules that are installed here and would not be with the core alone."""
    core = core_distributions()
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not core & {_plain(owner) for owner in owners} and not module.startswith("_")
    }


def core_environment(folder: Path) -> dict[str, str]:
    """The variables of a process in which nothing else can be imported; ``folder`` is for a file."""
    (folder / "sitecustomize.py").write_text(_BLOCKER.format(absent=absent_modules()), "utf-8")
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *([path] if path else [])])}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
