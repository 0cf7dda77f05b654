"""What can go wrong, as types. Every error says what happened, why, and what to do next.

Each class carries a stable ``code`` that ``docs/errors.md`` explains. Rooms define their own
errors beside the code that raises them; they all derive from :class:`HexportError`.
"""

from __future__ import annotations

from typing import ClassVar


class HexportError(Exception):
    """It could not be done; the command line turns this into a message and exit code 2."""

    code: ClassVar[str] = "HX000"

    def __init__(self, what: str, *, why: str = "", next: str = "") -> None:  # noqa: A002 - reads as prose at the raise
        self.what = what
        self.why = why
        self.next = next
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"why: {self.why}")
        if self.next:
            parts.append(f"next: {self.next}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, object]:
        """The same, for programs: what ``--json`` prints on stdout when a verb fails."""
        return {"code": self.code, "what": self.what, "why": self.why, "next": self.next}


class UsageError(HexportError):
    """The call itself is wrong: an option's form, a value, a combination."""

    code = "HX001"


class BadSamples(HexportError, ValueError):
    """Calibration or example inputs do not fit the model."""

    code = "HX701"


class MissingDependency(HexportError, ImportError):
    """An optional part of hexport is not installed."""

    code = "HX002"
