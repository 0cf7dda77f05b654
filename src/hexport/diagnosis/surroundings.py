"""Paths, disk and memory: what native code trips over without saying so."""

from __future__ import annotations

from hexport.diagnosis.machine import Machine
from hexport.diagnosis.report import Finding, Status

_GB = 10**9
_LITTLE_DISK, _NO_DISK = 2 * _GB, _GB // 5
_LITTLE_MEMORY = 2 * _GB
_WINDOWS_MOST = 260
_BELOW = 100
"""What hexport and the libraries add below a folder: the work folder, the graph's name, endings."""
_MOVE = {
    "environment": "make the environment in a short ASCII folder, for example C:\\hexport",
    "temp": "set TEMP and TMP to a short ASCII folder, for example C:\\temp",
    "cache": "set HEXPORT_CACHE to a short ASCII folder, for example C:\\hexport-cache",
}


def check_paths(machine: Machine) -> Finding:
    """Windows libraries take paths as narrow strings of at most 260 characters."""
    if machine.system != "windows":
        return Finding("paths", "ok", "paths of any alphabet and length are safe on this system")
    strange = {name: place.path for name, place in machine.places.items() if not place.path.isascii()}
    if strange:
        return Finding(
            "paths",
            "warning",
            f"not only ASCII in {_list(strange)}",
            why='Qualcomm\'s libraries can fail on such paths: "No mapping for the Unicode character exists"',
            fix="; ".join(_MOVE[name] for name in strange),
        )
    long = {
        name: place.path for name, place in machine.places.items() if len(place.path) + _BELOW > _WINDOWS_MOST
    }
    if long:
        return Finding(
            "paths",
            "warning",
            f"long paths: {_list(long)}",
            why=f"files below can pass Windows' limit of {_WINDOWS_MOST} characters and are then not found",
            fix="; ".join(_MOVE[name] for name in long),
        )
    return Finding("paths", "ok", "paths are ASCII and short")


def check_disk(machine: Machine) -> Finding:
    """Room to compile in (temp) and to keep models in (cache)."""
    places = {
        name: place
        for name, place in machine.places.items()
        if name in ("temp", "cache") and place.free_bytes is not None
    }
    sizes = ", ".join(
        f"{(place.free_bytes or 0) / _GB:.1f} GB in {name} ({place.path})" for name, place in places.items()
    )
    if not places:
        return Finding("disk", "warning", "free disk space cannot be read", why=_DISK_WHY)
    least = min(place.free_bytes or 0 for place in places.values())
    if least >= _LITTLE_DISK:
        return Finding("disk", "ok", f"free: {sizes}")
    status: Status = "problem" if least < _NO_DISK else "warning"
    variable = "TEMP" if machine.system == "windows" else "TMPDIR"
    return Finding(
        "disk",
        status,
        f"little free disk: {sizes}",
        why=_DISK_WHY,
        fix=f"free some, or set {variable} and HEXPORT_CACHE to folders on a larger disk",
    )


_DISK_WHY = "a compile writes copies of the model, context binaries and logs"


def check_memory(machine: Machine) -> Finding:
    """The compiler takes several times a model's size."""
    if machine.memory_bytes is None:
        return Finding("memory", "ok", "free memory cannot be read on this system")
    found = f"{machine.memory_bytes / _GB:.1f} GB of memory available"
    if machine.memory_bytes >= _LITTLE_MEMORY:
        return Finding("memory", "ok", found)
    return Finding(
        "memory",
        "warning",
        found,
        why="the compiler takes several times a model's size, and the system ends what takes too much",
        fix="close other programs, or use a machine or container with at least 4 GB",
    )


def _list(paths: dict[str, str]) -> str:
    return ", ".join(f"{name} ({path})" for name, path in paths.items())
