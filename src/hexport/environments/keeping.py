"""What there is: list toolchains, choose one, remove one. Nothing is started for any of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.environments import registry
from hexport.environments.failures import NotOurs, ToolchainError
from hexport.environments.place import toolchains_folder
from hexport.environments.record import Toolchain
from hexport.environments.registry import THIS
from hexport.environments.requirements import HOST, PROVIDER
from hexport.records import to_plain

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Removed:
    """A toolchain that is no more."""

    name: str
    bytes: int
    stays: str
    """The interpreter that hexport did not make and did not touch; empty when it made it."""
    was_default: bool

    def to_json(self) -> dict[str, object]:
        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain}


@dataclass(frozen=True)
class Listing:
    """All toolchains."""

    folder: Path
    default: str | None
    this: Toolchain
    """The interpreter that hexport runs in, which nobody has tested."""
    toolchains: tuple[Toolchain, ...]
    notes: tuple[str, ...]
    """Records that cannot be read."""

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "folder": str(self.folder),
            "default": self.default,
            "this": {**to_plain(self.this), "state": ""},
            "toolchains": [toolchain.to_json() for toolchain in self.toolchains],
            "notes": list(self.notes),
        }


def toolchains() -> Listing:
    """What there is; nothing is started."""
    found, notes = [], []
    for name in registry.names():
        try:
            found.append(registry.find(name))
        except ToolchainError as error:
            notes.append(f"{error.what}: {error.why}")
    return Listing(toolchains_folder(), registry.default_name(), _this(), tuple(found), tuple(notes))


def use(name: str) -> Toolchain | None:
    """Make it the default of the command line; ``this`` is the interpreter that hexport runs in."""
    if name == THIS:
        registry.set_default(None)
        return None
    toolchain = registry.find(name)
    registry.set_default(name)
    return toolchain


def remove(name: str, say: Say = silent) -> Removed:
    """Remove it: the environment that hexport made, and of any other interpreter the name alone."""
    if name == THIS:
        raise NotOurs("hexport does not remove the interpreter that it runs in")
    with registry.locked(name, lambda: say(f"another process works on {name}; waiting for it")):
        toolchain = registry.find(name)
        folder = toolchains_folder() / toolchain.folder
        if toolchain.folder and folder.exists() and not registry.is_ours(folder):
            raise NotOurs(
                f"{folder} is not what hexport made",
                why="it is a link, or lies elsewhere, or has lost its mark",
                next=f"look at it yourself; then remove {registry.record_path(name)} to forget the name",
            )
        was_default = registry.default_name() == name
        if was_default:
            registry.set_default(None)
        with registry.writing():
            registry.record_path(name).unlink()
        if toolchain.folder:
            registry.drop(folder)
    stays = "" if toolchain.folder else toolchain.python
    return Removed(name, toolchain.bytes if toolchain.folder else 0, stays, was_default)


def _this() -> Toolchain:
    from importlib import metadata

    versions = {}
    for name in (PROVIDER, HOST):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    version = ".".join(map(str, sys.version_info[:3]))
    return Toolchain(THIS, sys.executable, version, facts.current_platform(), versions, ())
