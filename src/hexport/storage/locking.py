"""One process at a time, on any platform: the operating system's file lock, which dies with its holder.

So a lock that can be taken is free or of a dead process; process numbers would not do, they are used again.
Some file systems have no locks. There everybody gets one that guards nothing, and says so.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Held:
    """A lock that this process has."""

    path: Path
    guards: bool
    """False on a file system without locks: others may hold the same one."""
    _handle: int

    def release(self) -> None:
        """Let others in; the file goes."""
        # Windows removes no open file; elsewhere it must go while nobody else can have it.
        if sys.platform != "win32":
            self._remove()
        # Not left to closing: a forked process has a copy of the handle, and would keep the lock.
        if self.guards:
            _unlock(self._handle)
        os.close(self._handle)
        if sys.platform == "win32":
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()


def take(path: Path) -> Held | None:
    """The lock file ``path``, made if need be; None: somebody has it, in this process or another."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            taken = _try_lock(handle)
        except OSError:
            return Held(path, False, handle)
        if taken and _is_still(handle, path):
            os.utime(path)
            return Held(path, True, handle)
        os.close(handle)
        if not taken:
            return None


def taken_since(path: Path) -> float | None:
    """When the lock was taken that somebody has, in seconds since 1970; None: nobody has it."""
    try:
        since = path.stat().st_mtime
    except OSError:
        return None
    held = take(path)
    if held is None:
        return since
    held.release()
    return None


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[Held]:
    """Hold the lock file ``path``; ``waiting`` is called once if somebody else has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held, refused = take(path), 0
    while held is None:
        refused += 1
        # The first time it may be somebody who only looked whether it is free.
        if refused == 2 and waiting is not None:
            waiting()
        time.sleep(_POLL_SECONDS)
        held = take(path)
    try:
        yield held
    finally:
        held.release()


def _is_still(handle: int, path: Path) -> bool:
    """Whoever had the lock before removed its file; a lock on a file without a name excludes nobody."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
