"""QNN's backends and the libraries they are in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexport.facts.load import read_entries


@dataclass(frozen=True)
class QnnBackend:
    """One of them."""

    name: str
    """The value of ``backend_type``."""
    library: str
    """Its library, without what platforms put around it."""
    meaning: str
    source: str
    option: str = ""
    """The option that names its library beside that of another backend."""
    computes: bool = True
    """Without it a session only records, and what it returns is no result."""
    simulated_on: tuple[str, ...] = ()
    """Platforms whose library computes without the device."""


@cache
def backends() -> tuple[QnnBackend, ...]:
    """Every backend."""
    return read_entries("backends.toml", "backend", QnnBackend)


def find_backend(name: str) -> QnnBackend | None:
    """By its ``backend_type``."""
    return next((backend for backend in backends() if backend.name == name), None)


def simulates_npu(platform: str) -> bool:
    """Whether the package for ``platform`` carries the simulator of the NPU."""
    return any(platform in backend.simulated_on for backend in backends() if backend.name == "htp")
