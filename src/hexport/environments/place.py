"""Where toolchains are kept: the user's data folder, since they cannot be made again without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_root() -> Path:
    """The user's data folder; ``HEXPORT_DATA`` moves it."""
    chosen = os.environ.get("HEXPORT_DATA")
    return Path(chosen).expanduser().absolute() if chosen else _platform_data()


def toolchains_folder() -> Path:
    """Records, and the environments that they name."""
    return data_root() / "toolchains"


def _platform_data() -> Path:
    if sys.platform == "win32":
        # Not the roaming folder: an environment belongs to one machine.
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hexport" / "Data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hexport"
    # The XDG specification: a relative path is invalid and ignored.
    xdg = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "share") / "hexport"
