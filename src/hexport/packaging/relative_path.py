"""Paths inside a package: relative, plain, and the same on every system."""

from __future__ import annotations

import re
from pathlib import Path

from hexport.packaging.failures import UnsafePath

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""``nul.bin`` is the null device on Windows, in any folder."""
_LONGEST = 240


def check_relative_path(path: str, where: str) -> str:
    """Give ``path`` back, or raise :class:`UnsafePath` with what is wrong with it."""
    if problem := _problem(path):
        raise UnsafePath(
            f"{where} names a file {path[:_LONGEST]!r}",
            why=problem,
            next="do not use it: hexport writes no such package",
        )
    return path


def _problem(path: str) -> str:
    if not path or len(path) > _LONGEST:
        return f"a path has 1 to {_LONGEST} characters"
    if path.startswith("/"):
        return "it is absolute"
    if found := _FORBIDDEN.search(path):
        return f"{found[0]!r} may not be in a path: on some system it leads elsewhere or is no name"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"the part {part!r} may lead out of the package"
        if part.endswith((".", " ")) or part.startswith(" "):
            return f"the part {part!r} is another name on Windows"
        if _DEVICES.match(part):
            return f"{part!r} is a device on Windows"
        try:
            part.encode()
        except UnicodeEncodeError:
            return f"the part {part!r} is not text"
    return ""


def inside(folder: Path, path: str, where: str) -> Path:
    """The file that ``path`` is in ``folder``; links that lead out of it are refused."""
    check_relative_path(path, where)
    file = folder / path
    try:
        real = file.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links, before Python 3.13
        raise UnsafePath(f"{where} names {path!r}, which leads nowhere", why=str(error)) from error
    if not real.is_relative_to(folder.resolve()):
        raise UnsafePath(
            f"{where} names {path!r}, which is a link",
            why=f"it leads out of the package, to {real}",
            next="put the file itself into the package",
        )
    return file
