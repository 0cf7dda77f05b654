"""Handing memory back to the system that Python and its libraries have freed."""

from __future__ import annotations

import ctypes
import gc
import sys


def hand_back() -> None:
    """What is free between used blocks: glibc keeps it, 50 MB after a session that gave out as much."""
    # Nodes and values of a model know each other: a copy that is done with waits for the collector.
    gc.collect()
    # musl has no such call, and other systems need none.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
