"""Users' own rules: those that installed packages offer through an entry point."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points

from hexport.errors import UsageError
from hexport.rewrite.rule import Rule

ENTRY_POINT = "hexport.rules"


def offered_rules() -> Iterable[type[Rule]]:
    """One by one; what is no rule is refused with the package's name."""
    for entry in entry_points(group=ENTRY_POINT):
        rule = entry.load()
        if not (isinstance(rule, type) and issubclass(rule, Rule)):
            raise UsageError(
                f"the package {entry.dist.name if entry.dist else '?'} offers {entry.value} as a rule",
                why="it is not a class derived from hexport.rewrite.rule.Rule",
                next="correct or uninstall that package",
            )
        yield rule
