"""``cache``: what hexport keeps on this machine, and removing it."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from hexport.errors import UsageError
from hexport.records import to_plain
from hexport.storage.locking import taken_since
from hexport.storage.place import cache_root, staging_area, steps_folder, temporary_area, zoo_folder
from hexport.storage.store import Entry, Store, folder_bytes
from hexport.storage.sweeping import sweep
from hexport.storage.temporary import sweep_temporary

__all__ = ["Cache", "Cleared", "StepUse", "cache", "clear"]

_DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class StepUse:
    """The kept results of one step."""

    step: str
    entries: int
    bytes: int
    last_used: float
    """In seconds since 1970."""


@dataclass(frozen=True)
class Cache:
    """All that is kept."""

    folder: Path
    limit_bytes: float
    """Of the steps' results together."""
    steps: tuple[StepUse, ...]
    being_made: int
    """Results that some process is making at this moment."""
    staging_bytes: int
    """Packages that are being built, or were when their process died."""
    temporary_bytes: int
    """Other work that is under way, in the system's temporary folder."""
    zoo_bytes: int

    @property
    def bytes(self) -> int:
        """Of the steps' results."""
        return sum(step.bytes for step in self.steps)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        steps = [{**to_plain(step), "last_used": iso(step.last_used)} for step in self.steps]
        return {
            "schema_version": 1,
            "folder": str(self.folder),
            "limit_bytes": self.limit_bytes if isfinite(self.limit_bytes) else None,
            "bytes": self.bytes,
            "steps": steps,
            "being_made": self.being_made,
            "staging_bytes": self.staging_bytes,
            "temporary_bytes": self.temporary_bytes,
            "zoo_bytes": self.zoo_bytes,
        }


@dataclass(frozen=True)
class Cleared:
    """What was removed."""

    entries: int
    bytes: int
    in_use: int
    """Entries that stayed, because work that goes on may need them."""
    zoo_bytes: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain}


def cache() -> Cache:
    """What is kept, by step. What killed processes left in the system's temporary folder goes first."""
    store = Store()
    sweep_temporary()
    steps: dict[str, list[Entry]] = {}
    for entry in store.entries():
        steps.setdefault(entry.step, []).append(entry)
    used = (
        StepUse(step, len(found), sum(entry.bytes for entry in found), max(entry.used for entry in found))
        for step, found in sorted(steps.items())
    )
    return Cache(
        cache_root(),
        store.limit_bytes,
        tuple(used),
        store.being_made(),
        _bytes(staging_area()),
        _bytes(temporary_area()),
        _bytes(zoo_folder()),
    )


def clear(*, step: str | None = None, older_than: float | None = None, zoo: bool = False) -> Cleared:
    """Remove results: of one step or of all, last used more than ``older_than`` days ago or ever.

    Nothing that is being made is touched, nor what was used since that work began. ``zoo``: also what the
    zoo fetched, which takes the network to get again.
    """
    _check(step, older_than, zoo)
    notes: list[str] = []
    before = time.time() - older_than * _DAY_SECONDS if older_than is not None else float("inf")
    gone, used = Store().clear(step, before)
    if used:
        notes.append(f"{len(used)} results stayed: work that is going on may need them")
    if step is None:
        sweep(staging_area())
        sweep_temporary()
    freed = _clear_zoo(notes) if zoo else 0
    return Cleared(len(gone), sum(entry.bytes for entry in gone), len(used), freed, tuple(notes))


def iso(seconds: float) -> str:
    """A time for programs."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _check(step: str | None, older_than: float | None, zoo: bool) -> None:
    if older_than is not None and not (isfinite(older_than) and older_than >= 0):
        raise UsageError(f"--older-than {older_than:g}: days are 0 or more")
    if zoo and (step is not None or older_than is not None):
        raise UsageError(
            "--zoo goes with neither --step nor --older-than",
            why="the zoo's files belong to no step, and nobody notes when they were last used",
            next="hexport cache clear --zoo",
        )
    if step is not None:
        known = sorted({entry.step for entry in Store().entries()})
        if step not in known:
            raise UsageError(
                f"there is nothing of a step {step!r}",
                why=f"{steps_folder()} has: {', '.join(known) or 'nothing'}",
                next="hexport cache",
            )


def _clear_zoo(notes: list[str]) -> int:
    folder = zoo_folder()
    if any(taken_since(lock) is not None for lock in folder.glob("locks/*.lock")):
        notes.append("the zoo stayed: another process is fetching or exporting a model")
        return 0
    before = _bytes(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return before - _bytes(folder)


def _bytes(folder: Path) -> int:
    # Other processes work in there: what is gone when we look at it was counted by nobody.
    for _ in range(3):
        with contextlib.suppress(OSError):
            return folder_bytes(folder)
    return 0
