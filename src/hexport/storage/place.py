"""Where hexport keeps what can be made or fetched again."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from hexport.errors import UsageError

_LIMIT_GB = 10.0


def cache_root() -> Path:
    """The user's cache folder; ``HEXPORT_CACHE`` moves it."""
    chosen = os.environ.get("HEXPORT_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else _platform_cache()


def steps_folder() -> Path:
    """Results of expensive steps: what the limit is for."""
    return cache_root() / "steps"


def staging_area() -> Path:
    """Packages that are being built."""
    return cache_root() / "staging"


def temporary_area() -> Path:
    """Work that is under way, in the system's folder for such; ``TMPDIR`` moves it."""
    # On POSIX all users share that folder.
    user = "" if sys.platform == "win32" else f"-{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"hexport{user}"


def zoo_folder() -> Path:
    """Models and inputs that were fetched, and what exports them."""
    return cache_root() / "zoo"


def limit_bytes() -> float:
    """How large the results may be together; ``HEXPORT_CACHE_GB`` says otherwise."""
    given = os.environ.get("HEXPORT_CACHE_GB", "").strip()
    try:
        limit = float(given) if given else _LIMIT_GB
    except ValueError:
        limit = -1.0
    if not limit >= 0:  # not a number, too
        raise UsageError(
            f"HEXPORT_CACHE_GB is {given!r}",
            why="it must be a number of gigabytes, 0 or more",
            next=f"for example HEXPORT_CACHE_GB=20; without it {_LIMIT_GB:g} are used",
        )
    return limit * 1e9


def _platform_cache() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hexport" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hexport"
    # The XDG specification: a relative path is invalid and ignored.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "hexport"
