"""The store: one folder a result, there whole or not at all, checked before it is believed.

Several processes may use it at once: an entry is built aside and renamed into place, and whoever comes
second finds it there. What is damaged is removed and made again; what was not used for longest goes first
when there is too much.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hexport.storage.keys import file_digest
from hexport.storage.place import cache_root

_LIST = "entry.json"
_LIMIT_GB = 10.0
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
        self.root = root or cache_root() / "steps"
        given = os.environ.get("HEXPORT_CACHE_GB")
        self.limit_bytes = (limit_gb if limit_gb is not None else float(given or _LIMIT_GB)) * 1e9

    def get(self, step: str, key: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder of the result, made by ``make`` in an empty folder if it is not there; and if it was."""
        folder = self.root / step / key
        if self._is_whole(folder):
            os.utime(folder / _LIST)
            return folder, True
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
        try:
            make(part)
            _write_list(part)
            self._put(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.shrink(keep=folder)
        return folder, False

    def entries(self) -> list[Entry]:
        """All of them, the least recently used first."""
        found = []
        for listing in self.root.glob(f"*/*/{_LIST}"):
            folder = listing.parent
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            found.append(Entry(folder.parent.name, folder.name, folder, size, listing.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def shrink(self, keep: Path | None = None) -> None:
        """Remove what was not used for longest until the rest is within the limit."""
        for part in self.root.glob("*/.part-*"):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(part, ignore_errors=True)
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.limit_bytes:
                break
            if entry.folder != keep:
                remove(entry.folder)
                total -= entry.bytes

    def clear(self) -> int:
        """Remove everything; gives how many bytes that was."""
        entries = self.entries()
        for entry in entries:
            remove(entry.folder)
        return sum(entry.bytes for entry in entries)

    def _is_whole(self, folder: Path) -> bool:
        """Whether the entry is there and every file is what was written; a damaged one is removed."""
        try:
            listed = json.loads((folder / _LIST).read_text("utf-8"))
            whole = all(file_digest(folder / name) == digest for name, digest in listed.items())
        except FileNotFoundError:
            if not folder.exists():
                return False
            whole = False
        except (OSError, ValueError, AttributeError):
            whole = False
        if not whole:
            remove(folder)
        return whole

    def _put(self, part: Path, folder: Path) -> None:
        try:
            part.rename(folder)
        except OSError:
            # Another process was first, with the same result.
            if not self._is_whole(folder):
                raise


def remove(folder: Path) -> None:
    """Out of sight first, so that nobody finds half of it."""
    aside = folder.with_name(f".part-gone-{folder.name[:16]}-{os.getpid()}")
    try:
        folder.rename(aside)
    except OSError:
        aside = folder
    shutil.rmtree(aside, ignore_errors=True)


def _write_list(folder: Path) -> None:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    listed = {name: file_digest(folder / name) for name in sorted(names)}
    (folder / _LIST).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
