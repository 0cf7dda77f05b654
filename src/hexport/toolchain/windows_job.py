"""A Windows job object: limits a child's memory, and ends it when our handle closes, as it does when we die.

Written from the Win32 documentation; it cannot be tried on Linux, where ``lifeline.py`` serves.
"""

from __future__ import annotations

import ctypes
from ctypes import wintypes

_KILL_ON_JOB_CLOSE = 0x2000
_JOB_MEMORY = 0x200
_EXTENDED_LIMIT_INFORMATION = 9
_PROCESS_SET_QUOTA_AND_TERMINATE = 0x0100 | 0x0001


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
        ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_ulonglong * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class KillOnCloseJob:
    """Puts process ``pid`` under a job that ends with this process and allows ``memory`` bytes."""

    def __init__(self, pid: int, memory: int) -> None:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.OpenProcess.restype = wintypes.HANDLE
        self._job = kernel.CreateJobObjectW(None, None)
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE | _JOB_MEMORY
        limits.JobMemoryLimit = memory
        process = kernel.OpenProcess(_PROCESS_SET_QUOTA_AND_TERMINATE, False, pid)
        done = kernel.SetInformationJobObject(
            wintypes.HANDLE(self._job),
            _EXTENDED_LIMIT_INFORMATION,
            ctypes.byref(limits),
            ctypes.sizeof(limits),
        ) and kernel.AssignProcessToJobObject(wintypes.HANDLE(self._job), wintypes.HANDLE(process))
        kernel.CloseHandle(wintypes.HANDLE(process))
        if not done:
            raise ctypes.WinError(ctypes.get_last_error())  # type: ignore[attr-defined,unused-ignore]
