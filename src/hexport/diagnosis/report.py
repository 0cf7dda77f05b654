"""What the doctor says: one finding a check, and whether hexport can do its job here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hexport.records import to_plain
from hexport.version import __version__

Status = Literal["ok", "warning", "problem"]
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Finding:
    """The answer of one check."""

    check: str
    """A stable name, for programs: ``htp``, ``driver``, ``module-owners``, …"""
    status: Status
    """``problem``: hexport cannot do its main job here. ``warning``: an optional part fails, or may."""
    found: str
    why: str = ""
    """Why it matters."""
    fix: str = ""
    """What to type or change; empty when there is nothing to do."""


@dataclass(frozen=True)
class Report:
    """All findings, in the order in which causes come before what they cause."""

    platform: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.status != "problem" for finding in self.findings)

    def of(self, check: str) -> Finding:
        """The finding of one check."""
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    def to_json(self) -> dict[str, object]:
        return {
            "schema_version": SCHEMA_VERSION,
            "hexport": __version__,
            "platform": self.platform,
            "ok": self.ok,
            "findings": to_plain(self.findings),
        }
