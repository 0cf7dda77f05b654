"""The store: one folder a result, there whole or not at all, checked before it is believed.

Several processes may use it at once. An entry is made under its lock, so that the work is done once, and
aside, to be renamed into its place when it is whole. A maker that is killed loses its lock, and whoever
comes next makes the entry anew. What is damaged is removed and made again. What was not used for longest
goes first when there is too much; but whatever was used since the oldest work that is still going on
began, stays: that work may need it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from hexport.errors import UsageError
from hexport.storage.keys import file_digest
from hexport.storage.locking import exclusive, take, taken_since
from hexport.storage.place import limit_bytes, steps_folder

_LIST = "entry.json"
_PART = ".part-"
_LOCK = ".lock"
_ABANDONED_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Entry:
    """One kept result."""

    step: str
    key: str
    folder: Path
    bytes: int
    used: float
    """When it was last of use, in seconds since 1970."""


class Store:
    """Results of all steps under one root."""

    def __init__(self, root: Path | None = None, limit_gb: float | None = None) -> None:
        self.root = root or steps_folder()
        self.limit_bytes = limit_bytes() if limit_gb is None else limit_gb * 1e9

    def get(
        self,
        step: str,
        key: str,
        make: Callable[[Path], None],
        waiting: Callable[[], None] | None = None,
    ) -> tuple[Path, bool]:
        """The folder of the result, made by ``make`` in an empty folder if it is not there; and if it was.

        ``waiting`` is called once if another process or thread is making it at this moment.
        """
        folder = self.root / step / key
        if _is_whole(folder):
            return folder, True
        with ExitStack() as stack:
            with self._writable():
                stack.enter_context(exclusive(_lock_of(folder), waiting))
            if _is_whole(folder):
                return folder, True
            self._make(folder, make)
        self.shrink(keep=folder)
        return folder, False

    @contextmanager
    def using(self) -> Iterator[None]:
        """Whatever is taken from the store in here stays in it until the end of this, or of the process."""
        with ExitStack() as stack:
            with self._writable():
                stack.enter_context(exclusive(self.root / f"{uuid.uuid4().hex}{_LOCK}"))
            yield

    def entries(self) -> list[Entry]:
        """All of them, the least recently used first."""
        found = []
        for listing in self.root.glob(f"*/*/{_LIST}"):
            folder = listing.parent
            if not folder.name.startswith(_PART):
                # Another process may be removing it while we look.
                with contextlib.suppress(OSError):
                    size, used = folder_bytes(folder), listing.stat().st_mtime
                    found.append(Entry(folder.parent.name, folder.name, folder, size, used))
        return sorted(found, key=lambda entry: entry.used)

    def shrink(self, keep: Path | None = None) -> None:
        """Remove what was not used for longest until the rest is within the limit."""
        self._sweep()
        entries, oldest = self.entries(), self._oldest_work()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.limit_bytes or entry.used >= oldest:
                break
            if entry.folder != keep and _drop(entry.folder):
                total -= entry.bytes

    def clear(self, step: str | None = None, unused_since: float = inf) -> tuple[list[Entry], list[Entry]]:
        """Remove entries, of one step or all, last used before a time; those that went, those in use."""
        self._sweep()
        oldest = self._oldest_work()
        gone: list[Entry] = []
        used: list[Entry] = []
        for entry in self.entries():
            if step in (None, entry.step) and entry.used < unused_since:
                removed = entry.used < oldest and _drop(entry.folder)
                (gone if removed else used).append(entry)
        return gone, used

    def being_made(self) -> int:
        """How many entries other processes, or threads, are making."""
        return sum(taken_since(lock) is not None for lock in self.root.glob(f"*/*{_LOCK}"))

    def _make(self, folder: Path, make: Callable[[Path], None]) -> None:
        """Under the lock of ``folder``."""
        remove(folder)
        with self._writable():
            part = Path(tempfile.mkdtemp(prefix=f"{_PART}{folder.name}.", dir=folder.parent))
        try:
            make(part)
            _write_list(part)
            try:
                part.rename(folder)
            except OSError:
                # Only where there are no locks: another process was first, with the same result.
                if not _is_whole(folder):
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _oldest_work(self) -> float:
        """When the oldest work began that is still going on."""
        locks = [*self.root.glob(f"*{_LOCK}"), *self.root.glob(f"*/*{_LOCK}")]
        return min((since for lock in locks if (since := taken_since(lock)) is not None), default=inf)

    def _sweep(self) -> None:
        """Remove what dead makers left."""
        for part in self.root.glob(f"*/{_PART}*"):
            key = part.name.removeprefix(_PART).rpartition(".")[0]
            with contextlib.suppress(OSError):
                held = take(_lock_of(part.with_name(key)))
                if held is None:
                    continue
                try:
                    # Without locks only time tells.
                    if held.guards or time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                        shutil.rmtree(part, ignore_errors=True)
                finally:
                    held.release()

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"the cache at {self.root} cannot be written",
                why=str(error),
                next="free some space there, or set HEXPORT_CACHE to another folder",
            ) from error


def listed_digests(folder: Path) -> dict[str, str]:
    """The files of an entry that was found whole, each with its SHA-256."""
    listed: dict[str, str] = json.loads((folder / _LIST).read_text("utf-8"))
    return listed


def folder_bytes(folder: Path) -> int:
    """The size of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


def _is_whole(folder: Path) -> bool:
    """Whether the entry is there and every file is what was written. It then counts as used."""
    try:
        listed = json.loads((folder / _LIST).read_text("utf-8"))
        whole = set(listed) == set(_names(folder)) and all(
            file_digest(folder / name) == digest for name, digest in listed.items()
        )
        if whole:
            _touch(folder / _LIST)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False
    return whole


def _touch(listing: Path) -> None:
    with contextlib.suppress(PermissionError):  # a cache that may only be read serves, too
        os.utime(listing)


def _drop(folder: Path) -> bool:
    """Remove an entry, unless somebody is making it."""
    try:
        held = take(_lock_of(folder))
    except OSError:
        return False
    if held is None:
        return False
    try:
        remove(folder)
    finally:
        held.release()
    return not folder.exists()


def remove(folder: Path) -> None:
    """Out of sight first, so that nobody finds half of it."""
    aside = folder.with_name(f"{_PART}{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    except OSError:
        aside = folder
    shutil.rmtree(aside, ignore_errors=True)


def _names(folder: Path) -> list[str]:
    every = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in every if name != _LIST)


def _write_list(folder: Path) -> None:
    listed = {name: file_digest(folder / name) for name in _names(folder)}
    (folder / _LIST).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
