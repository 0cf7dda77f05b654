"""The two sides of a comparison: each a toolchain and a backend of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from hexport.backend.where import GPU, HTP, QNN_CPU
from hexport.environments.choosing import choose
from hexport.environments.registry import THIS
from hexport.errors import UsageError
from hexport.storage.installed import installed_version
from hexport.toolchain import Interpreter, in_force, only_here
from hexport.verification.subject import CPU, SIMULATOR

BACKENDS = (HTP, QNN_CPU, GPU, CPU)
"""Qualcomm's for the NPU, its reference and its GPU; and ONNX Runtime's own CPU."""
_SYNONYMS = {SIMULATOR: HTP}
"""What ``run`` and ``verify`` call it, because there it is never the device."""
_PACKAGES = ("onnxruntime-qnn", "onnxruntime")
_TWO = 2
_HOW = "--toolchain A --toolchain B, --backend X --backend Y, or both in order"


@dataclass(frozen=True)
class Side:
    """Where the model goes through."""

    toolchain: str
    backend: str
    interpreter: Interpreter | None = None
    """None: hexport's own Python."""
    doubt: str = ""
    """Why its last test failed, if so."""

    def in_force(self) -> AbstractContextManager[None]:
        """Everything native that this thread starts meanwhile is of this side."""
        return only_here(self.interpreter)

    @property
    def packages(self) -> dict[str, str]:
        """The versions that matter, by name; what is not installed there is not in it."""
        with self.in_force():
            return {name: version for name in _PACKAGES if (version := installed_version(name))}

    @property
    def title(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return f"{self.toolchain} ({versions})" if versions else self.toolchain

    def to_json(self) -> dict[str, object]:
        return {"toolchain": self.toolchain, "packages": self.packages, "backend": self.backend}


def make_sides(toolchains: Sequence[str], backends: Sequence[str]) -> tuple[Side, Side]:
    """A and B; what is given once holds for both, what is not given is what is in force, and the NPU."""
    for option, given in (("--toolchain", toolchains), ("--backend", backends)):
        if len(given) > _TWO:
            raise UsageError(f"{option} is given {len(given)} times", why="two are compared", next=_HOW)
    known = [_known_backend(backend) for backend in backends] or [HTP]
    places = [_place(name) for name in toolchains] or [_place(None)]
    a, b = (replace(places[n], backend=known[n]) for n in (0, -1))
    if a == b:
        raise UsageError(
            "there is nothing to compare",
            why=f"both sides are {a.backend} of the toolchain {a.toolchain!r}",
            next=f"give two of one kind: {_HOW}",
        )
    return a, b


def _known_backend(name: str) -> str:
    backend = _SYNONYMS.get(name, name)
    if backend not in BACKENDS:
        raise UsageError(f"--backend {name}: not known", next=f"use two of {', '.join(BACKENDS)}")
    return backend


def _place(name: str | None) -> Side:
    """The NPU of a toolchain by its name; None: of what is in force."""
    current = in_force()
    if name is None:
        return Side(THIS if current is None else current.name, HTP, current)
    choice = choose(name)
    if choice is None:
        return Side(THIS, HTP)
    return Side(name, HTP, choice.toolchain.interpreter, choice.toolchain.failure)
