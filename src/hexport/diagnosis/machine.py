"""The machine and the interpreter, as plain facts gathered once."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hexport import facts
from hexport.diagnosis import emulation
from hexport.diagnosis.memory import available_memory
from hexport.diagnosis.opencl import OpenCl, look_for_opencl

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "aarch64": "arm64", "i386": "x86", "i686": "x86"}
_SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}


@dataclass(frozen=True)
class Place:
    """A folder that hexport works in."""

    path: str
    free_bytes: int | None = None
    """Unknown when None."""


@dataclass(frozen=True)
class Machine:
    """What the checks need to know; made ones stand for machines that are not at hand."""

    system: str
    """``linux``, ``windows``, ``macos``, ``android``, or what Python calls it."""
    arch: str
    """Of the processor: ``x86_64``, ``arm64``, …"""
    python_arch: str
    """Of the interpreter, which may run under emulation."""
    python: tuple[int, int, int] = (3, 11, 0)
    glibc: str = ""
    """Its version; empty where there is none."""
    env: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    """``environment``, ``temp``, ``cache`` → where it is."""
    memory_bytes: int | None = None
    opencl: OpenCl = field(default_factory=OpenCl)

    @property
    def platform(self) -> str:
        """As wheels and ``facts`` name it: the interpreter's architecture decides what pip installs."""
        arch = "aarch64" if self.python_arch == "arm64" and self.system == "linux" else self.python_arch
        return f"{self.system}-{arch}"

    @property
    def may_have_npu(self) -> bool:
        """Qualcomm's chips are Arm; on x86 there is only the compiler and the simulator."""
        return self.arch == "arm64" and self.system in ("linux", "windows", "android")

    @property
    def simulates(self) -> bool:
        """Whether the library for it carries the HTP simulator."""
        return facts.simulates_npu(self.platform)


def normal_arch(name: str) -> str:
    """One name for each architecture, whoever reports it."""
    lower = name.lower()
    return _ARCHITECTURES.get(lower, lower)


def this_machine(cache: Path) -> Machine:
    """Look around. ``cache`` is where hexport keeps files."""
    system = "android" if hasattr(sys, "getandroidapilevel") else _SYSTEMS.get(sys.platform, sys.platform)
    python_arch = _python_arch(system)
    return Machine(
        system=system,
        arch=emulation.native_arch(system) or normal_arch(platform.machine()) or python_arch,
        python_arch=python_arch,
        python=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
        glibc=_glibc(),
        env=dict(os.environ),
        places={
            "environment": Place(sys.prefix, _free(Path(sys.prefix))),
            "temp": Place(tempfile.gettempdir(), _free(Path(tempfile.gettempdir()))),
            "cache": Place(str(cache), _free(cache)),
        },
        memory_bytes=available_memory(),
        opencl=look_for_opencl(),
    )


def _python_arch(system: str) -> str:
    """What the interpreter was built for. From Python 3.12 on ``platform.machine()`` tells the machine's."""
    if system == "macos":  # "macosx-11.0-universal2" says nothing; uname follows the emulation
        return normal_arch(platform.machine())
    name = normal_arch(sysconfig.get_platform().split("-", 1)[-1])
    if struct.calcsize("P") == 4:
        return {"x86_64": "x86", "win32": "x86", "arm64": "arm"}.get(name, name)
    return name


def _glibc() -> str:
    if not hasattr(os, "confstr"):
        return ""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # musl does not know the name
        return ""
    return version if name == "glibc" else ""


def _free(path: Path) -> int | None:
    """Free space where ``path`` is, or will be once it is made."""
    for folder in (path, *path.parents):
        if folder.exists():
            try:
                return shutil.disk_usage(folder).free
            except OSError:
                return None
    return None
