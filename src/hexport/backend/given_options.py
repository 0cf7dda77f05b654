"""What was asked for: options of every kind together, and where they are to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from hexport.facts import Option, options, parse_version


@cache
def known_options() -> dict[str, Option]:
    """Every option that is read by anybody, by its key."""
    return {option.key: option for option in options()}


@dataclass(frozen=True)
class Given:
    """What was asked for, by kind of option, and where it is to hold."""

    by_kind: Mapping[str, Mapping[str, str]]
    platform: str
    release: str | None
    """None when it is not known, and then nothing is too new."""

    def value(self, key: str) -> str | None:
        return next((entries[key] for entries in self.by_kind.values() if key in entries), None)

    def has(self, condition: str) -> bool:
        """Whether ``key`` was given, or given as ``key=value``."""
        key, equals, wanted = condition.partition("=")
        value = self.value(key)
        return value == wanted if equals else bool(value)

    def amounts_to(self, condition: str) -> bool:
        """The same with defaults counted in; a ``key`` alone must differ from its default."""
        key, equals, wanted = condition.partition("=")
        default = known_options()[key].default
        value = self.value(key) or default
        return value == wanted if equals else value != default

    def without(self, keys: Mapping[str, str]) -> Given:
        by_kind = {
            kind: {key: value for key, value in entries.items() if key not in keys}
            for kind, entries in self.by_kind.items()
        }
        return replace(self, by_kind=by_kind)

    def before(self, release: str) -> bool:
        return bool(release and self.release) and parse_version(self.release or "") < parse_version(release)
