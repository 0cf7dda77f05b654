"""``inspect``: find out what a thing is by its content, and tell what is inside."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hexport.inspection.failures import NotInspectable
from hexport.model.labels import COMPILED_OP
from hexport.packaging.manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hexport.inspection.section import Section
    from hexport.toolchain import Limits

__all__ = ["Inspection", "inspect"]

_ZIP = b"PK\x03\x04"
_ONNX_BEGINS = 0x08
"""ONNX files begin with the field ir_version; nothing else that is looked at here does."""


class Content(Protocol):
    """What each kind of thing tells: a record, which people see in sections."""

    def sections(self) -> Iterator[Section]: ...


@dataclass(frozen=True)
class Inspection:
    """The result of ``inspect``."""

    path: str
    kind: str
    """``onnx``, ``ep_context``, ``context_binary``, ``package``, ``packed_package``, ``pte``, ``dlc``."""
    bytes: int
    content: Content

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``: what is inside is under the name of the kind."""
        from hexport.records import to_plain

        return {
            "schema_version": 1,
            "path": self.path,
            "kind": self.kind,
            "bytes": self.bytes,
            self.kind: to_plain(self.content),
        }


def inspect(thing: str | Path, *, limits: Limits | None = None) -> Inspection:
    """Look into a file or folder; a model of the zoo is ``zoo:NAME``."""
    path = _path(thing)
    kind = kind_of(path)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    return Inspection(str(thing), kind, size, _look(kind, path, limits))


def kind_of(path: Path) -> str:
    """By content, not by name: a context binary is often called ``.bin``, and so is much else."""
    if path.is_dir():
        if (path / MANIFEST).exists():
            return "package"
        raise NotInspectable(
            f"{path} is a folder without {MANIFEST}",
            why="of folders, hexport knows packages only",
            next="name a file in it",
        )
    if not path.is_file():
        raise NotInspectable(f"{path} is no file", why="it does not exist, or is a pipe or a device")
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise NotInspectable(f"{path} cannot be read", why=error.strerror or str(error)) from error
    if head.startswith(_ZIP):
        return _kind_of_zip(path)
    if head[4:6] == b"ET" and head[6:8].isdigit():
        return "pte"
    if head[:1] == bytes([_ONNX_BEGINS]) or path.suffix.lower() == ".onnx":
        return _kind_of_onnx(path)
    if path.suffix.lower() == ".bin" or head[:3] == b"\0\0\0":
        return "context_binary"
    return _unknown(path, f"it begins with {head[:8]!r}" if head else "it is empty")


def _kind_of_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        return _unknown(path, f"it is a damaged zip: {error}")
    if MANIFEST in names:
        return "packed_package"
    if "model" in names:
        return "dlc"
    if any(name.startswith("htp.cache.") for name in names):
        return "context_binary"  # for several chips
    return _unknown(path, f"it is a zip, with neither {MANIFEST} nor a model of Qualcomm's in it")


def _kind_of_onnx(path: Path) -> str:
    from hexport.model.file import load, nodes

    calls = any(node.op_type == COMPILED_OP.encode() for node in nodes(load(path).graph))
    return "ep_context" if calls else "onnx"


def _unknown(path: Path, why: str) -> str:
    raise NotInspectable(
        f"{path} is of no kind that hexport knows",
        why=why,
        next="inspect takes ONNX models, context binaries (.bin), packages, .pte and .dlc files",
    )


def _look(kind: str, path: Path, limits: Limits | None) -> Content:
    # Each kind imports what it needs and no more: a manifest is read without protobuf.
    if kind == "package":
        from hexport.inspection.package import inspect_package

        return inspect_package(path)
    if kind == "packed_package":
        from hexport.inspection.package import inspect_packed

        return inspect_packed(path)
    if kind == "pte":
        from hexport.inspection.pte import inspect_pte

        return inspect_pte(path, limits)
    if kind == "dlc":
        from hexport.inspection.dlc import inspect_dlc

        return inspect_dlc(path)
    if kind == "context_binary":
        from hexport.inspection.context_file import inspect_context

        return inspect_context(path, limits)
    if kind == "ep_context":
        from hexport.inspection.context_model import inspect_context_model

        return inspect_context_model(path, limits)
    from hexport.inspection.onnx_model import inspect_onnx

    return inspect_onnx(path)


def _path(thing: str | Path) -> Path:
    if isinstance(thing, str) and thing.startswith("zoo:"):
        from hexport import zoo

        return zoo.get(thing.removeprefix("zoo:"))
    return Path(thing)
