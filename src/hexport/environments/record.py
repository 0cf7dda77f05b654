"""What is known of a toolchain: one JSON file, which is there once everything it names is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hexport.environments.failures import ToolchainError
from hexport.records import RecordError, from_plain, to_plain
from hexport.toolchain import Interpreter

SCHEMA_VERSION = 1
State = Literal["ok", "failed", "changed", "missing"]


@dataclass(frozen=True)
class BackendState:
    """How one backend took the tiny graph there."""

    backend: str
    state: str
    """``works``, ``absent``: its library is not there, or ``fails``."""
    why: str = ""


@dataclass(frozen=True)
class Toolchain:
    """A named interpreter with what is installed there."""

    name: str
    python: str
    python_version: str
    platform: str
    packages: dict[str, str]
    """Version by name."""
    backends: tuple[BackendState, ...]
    requirements: tuple[str, ...] = ()
    """What it was made from; empty for an interpreter that was there before."""
    folder: str = ""
    """The name of the environment that hexport made; empty: it made none."""
    environment: dict[str, str] = field(default_factory=dict)
    """What must be set before the interpreter starts."""
    evidence: tuple[str, ...] = ()
    """Folders whose names tell the versions that were verified."""
    bytes: int = 0
    verified: str = ""
    """When it was, in UTC."""
    failure: str = ""
    """Why it did not pass, the last time it was tested."""

    @property
    def state(self) -> State:
        """As far as a look at the disk can tell."""
        if not Path(self.python).exists():
            return "missing"
        if not all(Path(place).exists() for place in self.evidence):
            return "changed"
        return "failed" if self.failure else "ok"

    @property
    def title(self) -> str:
        """What it is, in a line."""
        named = [name for name in ("executorch", "onnxruntime-qnn", "onnxruntime") if name in self.packages]
        versions = [f"{name} {self.packages[name]}" for name in named]
        return ", ".join([*versions, f"Python {self.python_version}"])

    @property
    def interpreter(self) -> Interpreter:
        """What workers are started in."""
        return Interpreter(self.name, self.python, self.platform, self.packages, self.environment)

    def to_json(self) -> dict[str, object]:
        plain: dict[str, object] = to_plain(self)
        return {**plain, "state": self.state}


def write_record(path: Path, toolchain: Toolchain) -> None:
    """In its place whole, or not at all."""
    document = {"schema_version": SCHEMA_VERSION, **to_plain(toolchain)}
    write_whole(path, json.dumps(document, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """A file of text that takes its place when it is complete; what the disk says against it is raised."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, "utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_record(path: Path) -> Toolchain:
    """The record in a file, or the error that tells what is wrong with it."""
    try:
        document = json.loads(path.read_text("utf-8"))
        return from_plain(Toolchain, _without_version(document))
    except (OSError, ValueError, RecursionError) as error:  # a RecordError is a ValueError
        raise ToolchainError(
            f"the record of the toolchain {path.stem!r} cannot be read",
            why=f"{path}: {error}",
            next=f"if no newer hexport wrote it, remove {path.name} there and add the toolchain again",
        ) from error


def _without_version(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(f"not a record of version {SCHEMA_VERSION}")
    return {key: value for key, value in document.items() if key != "schema_version"}
