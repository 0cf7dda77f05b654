"""``op_packages``: libraries of operators for QNN itself, checked before the provider loads them.

The provider skips an entry of another form with one line in its log; a library that cannot be registered
stops its backend, so that every node would run on the CPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from hexport.backend.given_options import Given
from hexport.facts import current_platform

_FORM = "OPERATOR:LIBRARY:SYMBOL[:TARGET]"
_TARGETS = ("CPU", "HTP")
"""What the HTP library of 2.7.0 knows; on x86_64, where it only prepares, it takes CPU alone (measured)."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_DRIVES_SINCE = "2.7.0"
"""Before, the provider split a Windows path at its drive letter: seen in the sources of 2.0.0 and 2.7.0."""


@dataclass(frozen=True)
class OpPackage:
    """One entry: which library computes an operator on which processor."""

    operator: str
    library: str
    symbol: str
    target: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.operator, self.library, self.symbol, self.target)))


def packages_problem(value: str, given: Given) -> str:
    """What is wrong with the list for this session; empty when nothing is."""
    seen: set[tuple[str, str]] = set()
    for entry in _entries(value):
        package = _parsed(entry, given.platform)
        if package is None:
            return f"op_packages: {entry!r} is not {_FORM}; the provider would skip it"
        if problem := _target_problem(package, given) or _library_problem(package, given):
            return f"op_packages: {problem}"
        if (package.operator, package.target) in seen:
            return f"op_packages: {package.operator} has two libraries for {package.target or 'one target'}"
        seen.add((package.operator, package.target))
    return ""


def with_whole_paths(value: str) -> str:
    """The list as the provider reads it: without spaces around, and not relative to a worker's folder."""
    packages = filter(None, (_parsed(entry, current_platform()) for entry in _entries(value)))
    return ",".join(
        str(OpPackage(p.operator, str(Path(p.library).absolute()), p.symbol, p.target)) for p in packages
    )


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")]


def _parsed(entry: str, platform: str) -> OpPackage | None:
    operator, _, rest = entry.partition(":")
    drive = ""
    if platform.startswith("windows") and _DRIVE.match(rest):
        drive, rest = rest[:2], rest[2:]
    library, *others = (part.strip() for part in rest.split(":"))
    if not operator.strip() or not library or len(others) not in (1, 2) or not all(others):
        return None
    return OpPackage(operator.strip(), drive + library, *others)


def _target_problem(package: OpPackage, given: Given) -> str:
    """The NPU's library wants to know; of the others it is not known what they want."""
    if given.value("backend_path") or given.value("backend_type") not in (None, "htp"):
        return ""
    if package.target and package.target not in _TARGETS:
        return f"{package.operator}: there is no target {package.target!r}; it takes {', '.join(_TARGETS)}"
    if package.target != "CPU" and given.platform.endswith("x86_64"):
        return f"{package.operator}: on {given.platform} the target is CPU, so end it with :CPU"
    return ""


def _library_problem(package: OpPackage, given: Given) -> str:
    library = Path(package.library)
    if given.platform == current_platform():
        if not library.is_file():
            return f"{package.operator}: there is no library {package.library}"
        library = library.absolute()
    windows = given.platform.startswith("windows")
    drive = PureWindowsPath(library).drive if windows else ""
    if "," in str(library) or ":" in str(library).removeprefix(drive):
        return f"{package.operator}: the provider cannot read a path with a comma or colon: {library}"
    if drive and given.before(_DRIVES_SINCE):
        return (
            f"{package.operator}: onnxruntime-qnn {given.release} cannot read the drive in {library}; "
            f"from {_DRIVES_SINCE} on it can"
        )
    return ""
