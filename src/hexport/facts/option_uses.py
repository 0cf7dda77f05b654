"""Who is told an option when compiling and running are apart: the compiler, the session, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexport.facts.load import read_entries
from hexport.records import RecordError


@dataclass(frozen=True)
class OptionUse:
    """Options that are treated alike."""

    keys: tuple[str, ...]
    why: str
    source: str
    compiler: bool = True
    """The compiler is told."""
    context: bool = True
    """The session from a compiled context is told."""
    instead: str = ""
    """What does here what the option would do; empty: it has its effect."""

    def __post_init__(self) -> None:
        if self.compiler and self.context:
            raise RecordError(f"{self.keys[0]}: told to both is what an option is that is not listed")
        if self.instead and (self.compiler or self.context):
            raise RecordError(f"{self.keys[0]}: instead is for options that nobody is told")


@cache
def option_uses() -> tuple[OptionUse, ...]:
    """Every group that is not told to both."""
    return read_entries("option_uses.toml", "use", OptionUse)


@cache
def use_of(key: str) -> OptionUse | None:
    """How an option is treated; None: it is told to both."""
    return next((use for use in option_uses() if key in use.keys), None)
