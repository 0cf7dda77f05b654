"""QNN libraries on this machine and the SDK each was built from, read from the files themselves."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hexport.diagnosis.machine import Machine

# Every QNN library holds one of: "v2.51.0.260929181845" (the build id), "AISW_VERSION: 2.51.0".
_BUILD = re.compile(rb"v(2\.\d{1,3}\.\d{1,3})\.\d{6,12}|AISW_VERSION: (2\.\d{1,3}\.\d{1,3})\x00")
_SDK_FOLDER = re.compile(r"(?<![\d.])(2\.\d+\.\d+)(?:\.\d+)?(?![\d.])")
_SDK_YAML = re.compile(r"^\s*version\s*:\s*['\"]?v?(2\.\d+\.\d+)", re.MULTILINE)
_BOARD_FOLDERS = ("/usr/lib", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/vendor/lib64", "/system/lib64")
_ON_PATH = tuple(f"libQnn{name}.so" for name in ("Htp", "Gpu", "Cpu", "Saver", "Ir", "System"))
_DRIVER_STORE = "System32/DriverStore/FileRepository"


@dataclass(frozen=True)
class Library:
    """A native library; ``sdk`` is empty when the file does not tell."""

    path: str
    sdk: str = ""

    @property
    def name(self) -> str:
        return re.split(r"[/\\]", self.path)[-1]


@dataclass(frozen=True)
class Libraries:
    """All that were found."""

    bundled: tuple[Library, ...] = ()
    """In the onnxruntime-qnn package."""
    system: tuple[Library, ...] = ()
    """Of the device's own driver or image."""
    on_path: tuple[Library, ...] = ()
    """In the folders of LD_LIBRARY_PATH, which the loader searches before the package."""
    sdk_root: str = ""
    """The SDK version under QNN_SDK_ROOT."""

    @property
    def bundled_sdk(self) -> str:
        return next((library.sdk for library in self.bundled if library.sdk), "")

    def in_package(self, stem: str) -> bool:
        """Whether the package has ``QnnHtp`` as libQnnHtp.so or QnnHtp.dll."""
        return any(library.name in (f"lib{stem}.so", f"{stem}.dll") for library in self.bundled)


def look_at_libraries(machine: Machine, package: Path | None) -> Libraries:
    """Search where they can be on such a machine."""
    return Libraries(
        bundled=bundled_libraries(package) if package else (),
        system=tuple(_read(path) for path in _system_files(machine)),
        on_path=tuple(
            _read(path)
            for folder in machine.env.get("LD_LIBRARY_PATH", "").split(os.pathsep)
            if folder and machine.system != "windows"
            for path in _glob(Path(folder), _ON_PATH)
        ),
        sdk_root=sdk_under(machine.env),
    )


def bundled_libraries(package: Path) -> tuple[Library, ...]:
    """Those of the package. Only the smallest are read for their SDK: the compiler has 100 MB."""
    files = _glob(package, ("libQnn*.so", "Qnn*.dll"))
    small = [path for path in files if path.stem.removeprefix("lib") in ("QnnSaver", "QnnIr")]
    return tuple(_read(path) if path in small else Library(str(path)) for path in files)


def sdk_of_file(path: Path) -> str:
    """The SDK version inside a QNN library; empty when it has none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _BUILD.search(content)
            return (found[1] or found[2]).decode() if found else ""
    except (OSError, ValueError):  # unreadable, or empty
        return ""


def sdk_under(env: Mapping[str, str]) -> str:
    """The version of the SDK that QNN_SDK_ROOT points at: its own file, else its folder's name."""
    root = env.get("QNN_SDK_ROOT", "")
    if not root:
        return ""
    for name in ("sdk.yaml", "share/QNN/sdk.yaml"):
        try:
            found = _SDK_YAML.search((Path(root) / name).read_text("utf-8", errors="replace"))
        except OSError:
            continue
        if found:
            return found[1]
    in_path = _SDK_FOLDER.findall(root)
    return in_path[-1] if in_path else ""


def _system_files(machine: Machine) -> Iterator[Path]:
    if machine.system == "windows":
        store = Path(machine.env.get("SystemRoot", "C:/Windows")) / _DRIVER_STORE
        for package in _glob(store, ("qcnspmcdm*",)):
            for pattern in ("**/Qnn*.dll", "**/libQnn*Skel.so", "**/libcdsprpc.dll"):
                yield from _glob(package, (pattern,))
    elif machine.may_have_npu:
        for folder in _BOARD_FOLDERS:
            yield from _glob(Path(folder), ("libQnnHtp.so", "libcdsprpc.so*"))


def _glob(folder: Path, patterns: Iterable[str]) -> list[Path]:
    try:
        return sorted(path for pattern in patterns for path in folder.glob(pattern))
    except OSError:  # a driver store may refuse to be read
        return []


def _read(path: Path) -> Library:
    return Library(str(path), sdk_of_file(path) if "Qnn" in path.name else "")
