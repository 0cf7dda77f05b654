"""Where fetched files live on this machine."""

from __future__ import annotations

from pathlib import Path

from hexport.storage.place import cache_root


def root() -> Path:
    """The zoo's folder in the user's cache."""
    return cache_root() / "zoo"
