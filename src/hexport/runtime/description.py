"""What runs where, for people and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from hexport.environments.registry import THIS
from hexport.records import to_plain
from hexport.runtime.planning import Place
from hexport.storage.installed import installed_version
from hexport.toolchain import Interpreter, only_here

_NATIVE = ("onnxruntime-qnn", "onnxruntime")


@dataclass(frozen=True)
class Home:
    """The interpreter that native code runs in."""

    name: str
    """Of the toolchain; ``this``: the program's own interpreter."""
    packages: dict[str, str]
    """Versions of what runs models there."""
    python: str = ""
    """Where it is; empty for the program's own."""

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return f"{self.name} ({versions})" if versions else self.name


@dataclass(frozen=True)
class Description:
    """What runs where."""

    package: str
    backend: str
    target: str | None
    isolated: bool
    toolchain: Home
    scheme: str
    places: tuple[Place, ...]
    runs: dict[str, int]
    """Bucket, or ``cpu`` → how many requests it has served."""
    rebuilt: int
    """How often the NPU or the worker was lost and made anew."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"schema_version": 1, **to_plain(self)}


def home_of(interpreter: Interpreter | None) -> Home:
    """By its name and versions; None: this one."""
    with only_here(interpreter):
        found = {name: version for name in _NATIVE if (version := installed_version(name))}
    return Home(THIS, found) if interpreter is None else Home(interpreter.name, found, interpreter.python)
