"""The toolchains that there are. Nothing half-made is among them: a record is written last and removed first.

toolchains/NAME.json         the record
toolchains/NAME-1f2e3d4c/    the environment it names, if hexport made one
toolchains/NAME.lock         while somebody makes, tests or removes it
toolchains/default           the name that `use` was given
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hexport.environments.failures import ToolchainError, UnknownToolchain
from hexport.environments.place import toolchains_folder
from hexport.environments.record import Toolchain, read_record, write_whole
from hexport.errors import UsageError
from hexport.storage.locking import exclusive, take

THIS = "this"
"""The interpreter that hexport itself runs in."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_MADE = re.compile(r"(.+)-[0-9a-f]{8}")
_MARK = ".hexport-toolchain"
"""In every environment that hexport made; what has none is never removed."""
# Names that Windows keeps for devices, whatever comes after a dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|default|com\d|lpt\d)(\..*)?")


def check_name(name: str) -> str:
    """The name, if it can be one on every system."""
    if name == THIS or not _NAME.fullmatch(name) or _DEVICES.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a toolchain",
            why="a name has small letters, digits, dots, dashes and underlines, at most 61, and is not "
            f"{THIS!r}, 'default' or the name of a device",
            next="for example --name qnn-2.3",
        )
    return name


def record_path(name: str) -> Path:
    return toolchains_folder() / f"{check_name(name)}.json"


def find(name: str) -> Toolchain:
    """The toolchain of that name."""
    path = record_path(name)
    if not path.exists():
        known = ", ".join(names()) or "none"
        raise UnknownToolchain(
            f"there is no toolchain {name!r}",
            why=f"there are: {known}",
            next="hexport toolchain list; hexport toolchain add onnxruntime-qnn==VERSION",
        )
    return read_record(path)


def names() -> list[str]:
    """All of them."""
    return sorted(path.stem for path in toolchains_folder().glob("*.json") if _NAME.fullmatch(path.stem))


def default_name() -> str | None:
    """What `use` was given; None: this interpreter."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (toolchains_folder() / "default").read_text("utf-8").strip() or None
    return None


def set_default(name: str | None) -> None:
    """None: this interpreter."""
    place = toolchains_folder() / "default"
    with writing():
        if name is None:
            place.unlink(missing_ok=True)
        else:
            write_whole(place, f"{name}\n")


@contextmanager
def locked(name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Nobody else makes, tests or removes that toolchain meanwhile."""
    lock = toolchains_folder() / f"{check_name(name)}.lock"
    with ExitStack() as stack:
        with writing():
            stack.enter_context(exclusive(lock, waiting))
        yield


@contextmanager
def writing() -> Iterator[None]:
    """For what is written to the folder of toolchains."""
    try:
        yield
    except OSError as error:
        raise ToolchainError(
            f"{toolchains_folder()} cannot be written",
            why=str(error),
            next="free some space there, or set HEXPORT_DATA to another folder",
        ) from error


def new_folder(name: str) -> Path:
    """An empty folder with a name that was never used: nothing that a killed maker started writes to it."""
    folder = toolchains_folder() / f"{name}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    (folder / _MARK).write_text(f"{name}\n", "utf-8")
    return folder


def is_ours(folder: Path) -> bool:
    """Whether hexport made it. A link never counts: what it leads to is somebody else's."""
    return folder.parent == toolchains_folder() and not folder.is_symlink() and (folder / _MARK).is_file()


def sweep(holding: str = "") -> None:
    """Remove environments that no record names and nobody is making; ``holding`` is a name that we locked."""
    folders = [folder for folder in toolchains_folder().glob("*-*") if folder.is_dir()]
    for folder in folders:
        match = _MADE.fullmatch(folder.name)
        if match and _NAME.fullmatch(match[1]) and not _is_named(folder, match[1]):
            with contextlib.suppress(OSError):
                if match[1] == holding:
                    drop(folder)
                else:
                    _sweep_other(folder, match[1])


def _sweep_other(folder: Path, name: str) -> None:
    held = take(toolchains_folder() / f"{name}.lock")
    if held is None:
        return
    try:
        # Without locks nobody can tell the dead from the living. And it may be named by now.
        if held.guards and not _is_named(folder, name):
            drop(folder)
    finally:
        held.release()


def _is_named(folder: Path, name: str) -> bool:
    """An unreadable record may name it."""
    path = record_path(name)
    try:
        return path.exists() and read_record(path).folder == folder.name
    except ToolchainError:
        return True


def drop(folder: Path) -> None:
    """Remove an environment of ours; what stays because it is in use, the next sweep takes."""
    if is_ours(folder):
        # The mark goes last: half of a folder is still known for ours.
        for entry in os.scandir(folder):
            if entry.name != _MARK:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        Path(entry.path).unlink()
        shutil.rmtree(folder, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            folder.rmdir()  # killed before the mark was written: it is empty, or not ours
