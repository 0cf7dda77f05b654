"""What an engine runs. It travels to workers, so that nothing is imported here but Python itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """One session to open."""

    name: str
    model: str
    provider_options: dict[str, str] = field(default_factory=dict)
    """Empty: on the CPU alone."""
    group: str = ""
    """Parts of one group share their weights: they are opened together, in order."""
