"""Two folders change places in one step, where the system can do that.

Replacing a folder takes two renames everywhere else, and between them there is no folder at all.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_HERE = -100
"""AT_FDCWD of Linux: paths are relative to the current folder."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS."""


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders of one file system; False: this system or file system has no such call."""
    first, second = os.fsencode(one), os.fsencode(other)
    system: str = sys.platform  # a plain text to the type checker, which would see one branch only
    try:
        if system == "linux":
            return bool(ctypes.CDLL(None).renameat2(_HERE, first, _HERE, second, _EXCHANGE) == 0)
        if system == "darwin":
            return bool(ctypes.CDLL(None).renamex_np(first, second, _EXCHANGE) == 0)
    except (OSError, AttributeError):
        pass  # a C library without the call
    return False
