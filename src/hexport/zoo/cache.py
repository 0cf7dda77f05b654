"""Where fetched files live on this machine."""

from __future__ import annotations

from pathlib import Path

from hexport.storage.place import zoo_folder


def root() -> Path:
    """The zoo's folder in the user's cache."""
    return zoo_folder()
