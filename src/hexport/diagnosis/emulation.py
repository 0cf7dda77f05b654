"""Is this interpreter emulated? Each system has its own way to tell; none tells by default.

Written from the documentation of Win32 and macOS; on Linux the kernel's own answer serves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping

_IMAGE_FILE_MACHINE = {0xAA64: "arm64", 0x8664: "x86_64", 0x014C: "x86"}


def native_arch(system: str) -> str:
    """The processor's architecture where emulation can hide it; empty when the usual way is right."""
    if system == "windows":
        return windows_arch(_is_wow64_process2(), os.environ)
    if system == "macos" and _rosetta():
        return "arm64"
    return ""


def windows_arch(native_machine: int | None, env: Mapping[str, str]) -> str:
    """From IsWow64Process2, or for old Windows from the variables that 32-bit processes get."""
    if native_machine in _IMAGE_FILE_MACHINE:
        return _IMAGE_FILE_MACHINE[native_machine]
    name = env.get("PROCESSOR_ARCHITEW6432") or env.get("PROCESSOR_ARCHITECTURE", "")
    return {"amd64": "x86_64", "arm64": "arm64", "x86": "x86"}.get(name.lower(), "")


def _is_wow64_process2() -> int | None:
    """The native machine, which x64 emulation on Arm hides from every environment variable."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32")
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        handle = ctypes.c_void_p(kernel.GetCurrentProcess())
        process, native = ctypes.c_ushort(), ctypes.c_ushort()
        # The function came with Windows 10 1709.
        with contextlib.suppress(AttributeError):
            if kernel.IsWow64Process2(handle, ctypes.byref(process), ctypes.byref(native)):
                return native.value
    return None


def _rosetta() -> bool:
    """Whether this process is translated. Intel machines do not know the name; the value then stays 0."""
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    if sys.platform == "darwin":
        libc = ctypes.CDLL(None)
        libc.sysctlbyname(b"sysctl.proc_translated", ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value == 1
