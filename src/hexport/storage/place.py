"""Where hexport keeps what can be made or fetched again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """The user's cache folder; ``HEXPORT_CACHE`` moves it."""
    chosen = os.environ.get("HEXPORT_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else _platform_cache()


def _platform_cache() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hexport" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hexport"
    # The XDG specification: a relative path is invalid and ignored.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "hexport"
