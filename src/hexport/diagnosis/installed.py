"""Which distributions are installed, from their metadata: nothing is imported to find out."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

MODULE = "onnxruntime"


@dataclass(frozen=True)
class Distribution:
    """An installed package."""

    name: str
    version: str
    folder: str
    """Its site-packages."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Installed:
    """What of ONNX Runtime is installed."""

    plugin: Distribution | None
    """onnxruntime-qnn, of any version."""
    owners: tuple[Distribution, ...]
    """Everything that brings a module ``onnxruntime``."""
    origin: str = ""
    """The file that ``import onnxruntime`` loads in this process; empty when nothing would be."""

    @property
    def host(self) -> Distribution | None:
        """The package that is the module; the plain one first."""
        return min(self.owners, key=lambda owner: owner.name != MODULE, default=None)


def look_at_packages(path: list[str] | None = None) -> Installed:
    """Look through ``path`` (default: ``sys.path``)."""
    path = sys.path if path is None else path
    plugin = None
    owners: dict[tuple[str, str, str], Distribution] = {}
    for distribution in metadata.distributions(path=path):
        described = _describe(distribution)
        if described is None:
            continue
        if described.name == "onnxruntime-qnn":
            plugin = plugin or described
        if _owns_module(distribution, described.name):
            owners[described.name, described.version, described.folder] = described
    return Installed(plugin, tuple(owners.values()), module_origin())


def module_origin() -> str:
    """Where ``import onnxruntime`` would load from, without loading it."""
    try:
        spec = importlib.util.find_spec(MODULE)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    # A folder without __init__.py is a namespace package: it has places, but no origin.
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")


def local_lookalike(folder: Path) -> str:
    """A file or folder that hides the real module from whoever starts Python in ``folder``."""
    for name in (f"{MODULE}.py", f"{MODULE}/__init__.py"):
        if (folder / name).is_file():
            return str(folder / name)
    return ""


def requirement(name: str) -> str:
    """What hexport itself asks pip for, for example ``onnxruntime-qnn==2.7.0``."""
    try:
        lines: Iterable[str] = metadata.requires("hexport") or ()
    except metadata.PackageNotFoundError:
        lines = ()
    for line in lines:
        if re.match(rf"{re.escape(name)}(?![\w.-])", line):
            return line.split(";")[0].strip()
    return name


def _describe(distribution: metadata.Distribution) -> Distribution | None:
    try:
        name, version = distribution.metadata["Name"], distribution.version
    except (KeyError, OSError):
        return None
    # A half-removed package (pip leaves "~nnxruntime") has metadata that pip itself ignores.
    if not name or Path(str(getattr(distribution, "_path", ""))).name.startswith("~"):
        return None
    folder = Path(str(distribution.locate_file("")))
    return Distribution(re.sub(r"[-_.]+", "-", name).lower(), str(version), str(folder))


def _owns_module(distribution: metadata.Distribution, name: str) -> bool:
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        return MODULE in listed.split()
    if not name.startswith((MODULE, "ort-")):
        return False
    return any(file.parts[:1] == (MODULE,) for file in distribution.files or ())
