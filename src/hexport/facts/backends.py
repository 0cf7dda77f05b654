"""QNN's backends: the libraries they are in, what they compute, what they refuse and get wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from hexport.facts.load import one_of, read_entries
from hexport.facts.versions import on_platform, parse_version
from hexport.records import RecordError

TAKEN, DOUBTFUL, REFUSED = "taken", "doubtful", "refused"


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
    choice: str = ""
    """What ``--backend`` calls it; empty: nothing is checked or run there."""
    label: str = ""
    """For the head of a column."""
    title: str = ""
    """For sentences."""
    needs: str = ""
    """What the machine must have for it."""
    quantised: str = TAKEN
    """Models whose activations are quantised: ``taken``, ``doubtful`` (taken, and not to be trusted) or
    ``refused``."""
    quantised_why: str = ""
    last_release: str = ""
    """The last release of onnxruntime-qnn whose wheels carry the library on ``last_on``; empty: all do."""
    last_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of(self.quantised, (TAKEN, DOUBTFUL, REFUSED), "quantised")
        if (self.quantised != TAKEN) != bool(self.quantised_why):
            raise RecordError(f"{self.name}: quantised_why belongs to what is doubtful or refused")
        if bool(self.choice) != bool(self.label and self.title):
            raise RecordError(f"{self.name}: choice, label and title belong together")

    def absent_from(self, release: str | None, platform: str) -> bool:
        """Whether that release is known not to carry it there."""
        if not self.last_release or release is None or not on_platform(self.last_on, platform):
            return False
        return parse_version(release) > parse_version(self.last_release)


@dataclass(frozen=True)
class Refusal:
    """Why a backend other than the NPU's left a node to ONNX Runtime's CPU; of the NPU tells advice.toml."""

    backends: tuple[str, ...]
    cause: str
    advice: str
    source: str
    match: str = ""
    """A regular expression searched for in the provider's reason, ignoring case; empty fits all."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.match)
        except re.error as error:
            raise RecordError(f"match: not a regular expression: {error}") from error


@dataclass(frozen=True)
class BackendFault:
    """A form of an operator that a backend other than the NPU's takes and computes wrongly."""

    backend: str
    op: str
    attribute: str
    """``name=value``."""
    form: str
    source: str


@cache
def backends() -> tuple[QnnBackend, ...]:
    """Every backend."""
    return read_entries("backends.toml", "backend", QnnBackend)


@cache
def backend_faults() -> tuple[BackendFault, ...]:
    """What is known of backends other than the NPU's, which has faults.toml."""
    return read_entries("backends.toml", "fault", BackendFault)


@cache
def refusals() -> tuple[Refusal, ...]:
    """The first that fits counts."""
    return read_entries("backends.toml", "refusal", Refusal)


def advise_on(backend: str, reason: str) -> Refusal:
    """What the provider's words mean on that backend; the last entry fits everything."""
    return next(
        entry
        for entry in refusals()
        if backend in entry.backends and re.search(entry.match, reason, re.IGNORECASE)
    )


def chosen_backend(choice: str) -> QnnBackend | None:
    """By what ``--backend`` calls it."""
    return next((backend for backend in backends() if choice and backend.choice == choice), None)


def find_backend(name: str) -> QnnBackend | None:
    """By its ``backend_type``."""
    return next((backend for backend in backends() if backend.name == name), None)


def simulates_npu(platform: str) -> bool:
    """Whether the package for ``platform`` carries the simulator of the NPU."""
    return any(platform in backend.simulated_on for backend in backends() if backend.name == "htp")
