"""How much memory a worker could get now, the limit of a container included."""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from pathlib import Path


class _MemoryStatus(ctypes.Structure):
    """Win32 MEMORYSTATUSEX."""

    _fields_ = (
        ("length", ctypes.c_ulong),
        ("load", ctypes.c_ulong),
        ("total", ctypes.c_ulonglong),
        ("available", ctypes.c_ulonglong),
        ("others", ctypes.c_ulonglong * 5),
    )


def available_memory() -> int | None:
    """Bytes; None where the system does not say."""
    return _windows_memory() or linux_memory(Path("/"))


def _windows_memory() -> int | None:
    if sys.platform == "win32":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):
            return int(status.available)
    return None


def linux_memory(root: Path) -> int | None:
    """The kernel's estimate, or what the container may still take if that is less."""
    limits = []
    with contextlib.suppress(OSError, TypeError, ValueError):
        text = (root / "proc/meminfo").read_text()
        limits.append(int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) * 1024)  # type: ignore[index]
    with contextlib.suppress(OSError, ValueError):  # "max" is not a number: no limit
        group = root / "sys/fs/cgroup"
        most = int((group / "memory.max").read_text())
        limits.append(max(0, most - int((group / "memory.current").read_text())))
    return min(limits, default=None)
