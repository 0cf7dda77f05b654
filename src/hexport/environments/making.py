"""Making an environment: venv, pip, a look at what came, the proof that it works, and last the record."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hexport import facts
from hexport.environments import asking, registry
from hexport.environments.executorch import executorch_environment
from hexport.environments.failures import IndexUnreachable, NoRoom, PackageUnavailable, ToolchainNotMade
from hexport.environments.place import toolchains_folder
from hexport.environments.record import Toolchain, write_record
from hexport.environments.requirements import EXECUTORCH, Plan
from hexport.environments.verifying import proved
from hexport.errors import HexportError
from hexport.storage.store import folder_bytes
from hexport.toolchain import JobFailed

_NO_ROOM = re.compile(r"No space left on device|\[Errno 28\]|\[WinError 112\]|Disk quota exceeded")
_UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError"
    r"|Failed to establish a new connection|Temporary failure in name resolution|Connection refused"
    r"|Network is unreachable|Connection broken|Max retries exceeded|connection error:"
)
_NO_VERSION = re.compile(r"No matching distribution found|Could not find a version that satisfies")
_LONGEST_LINE = 400
_AGAIN = "nothing was kept; what pip had downloaded it finds in its own cache when you try again"


def make(name: str, plan: Plan, base: str, say: Callable[[str], None]) -> Toolchain:
    """The toolchain of ``plan``, of the interpreter ``base``. Under the lock of ``name``."""
    registry.sweep(holding=name)
    _check_room(plan)
    with _disk_speaks(name):
        folder = registry.new_folder(name)
    try:
        with _disk_speaks(name):
            return _fill(name, plan, base, folder, say)
    except BaseException:
        registry.drop(folder)
        raise


def _fill(name: str, plan: Plan, base: str, folder: Path, say: Callable[[str], None]) -> Toolchain:
    say(f"making an environment in {folder}")
    python = _make_venv(base, folder)
    for step in plan.steps:
        say(f"installing {', '.join(part for part in step if not part.startswith('-'))}")
        _install(python, step)
    sight = asking.look(python)
    _check_pins(plan, sight)
    say("verifying: a tiny graph on every backend")
    toolchain = Toolchain(
        name,
        python,
        sight.python,
        sight.platform,
        sight.versions,
        (),
        requirements=plan.requirements,
        folder=folder.name,
        environment=executorch_environment(folder, sight) if EXECUTORCH in plan.pins else {},
        evidence=sight.evidence,
    )
    proven = replace(proved(toolchain, sight), bytes=folder_bytes(folder))
    write_record(registry.record_path(name), proven)
    return proven


def _check_room(plan: Plan) -> None:
    place = toolchains_folder()
    free = shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists())).free
    if free < plan.room_mb * 1e6:
        raise NoRoom(
            f"there is not enough room in {place}",
            why=f"the environment takes about {plan.room_mb} MB, and {free / 1e6:.0f} MB are free",
            next="free some space there, or set HEXPORT_DATA to a folder on another disk",
        )


def _make_venv(base: str, folder: Path) -> str:
    try:
        asking.ask(base, "make_environment", {"folder": str(folder)})
    except JobFailed as error:
        _raise_for_room(error.text)
        raise ToolchainNotMade(
            f"no environment could be made with {base}",
            why=error.text,
            next="this Python lacks venv or ensurepip (some systems package them as python3-venv): install "
            "them, or name another with --python PATH",
        ) from error
    return str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def _install(python: str, step: tuple[str, ...]) -> None:
    code, said = asking.run_pip(python, step)
    if code == 0:
        return
    _raise_for_room(said)
    reason = _reason(said)
    if cut_off := [line for line in said.splitlines() if _UNREACHABLE.search(line)]:
        raise IndexUnreachable(
            "pip could not reach its index",
            why=cut_off[-1].strip()[:_LONGEST_LINE],
            next=f"check the network and pip's settings (pip config list); {_AGAIN}",
        )
    if _NO_VERSION.search(said):
        raise PackageUnavailable(
            f"pip finds no {', '.join(part for part in step if not part.startswith('-'))} for this Python",
            why=reason,
            next="pip sees no version of it at all: look at its settings (pip config list). Nothing was kept"
            if "(from versions: none)" in said
            else "check the version; `hexport doctor --suggest` tells one that exists. Nothing was kept",
        )
    raise ToolchainNotMade(f"pip ended with {code}", why=reason, next=_AGAIN)


def _reason(said: str) -> str:
    """pip's own errors, else the end of what it said."""
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join([line for line in lines if line.startswith("ERROR:")][-4:] or lines[-5:])


def _raise_for_room(said: str) -> None:
    if found := _NO_ROOM.search(said):
        raise NoRoom(
            f"the disk of {toolchains_folder()}, or the one for temporary files, is full",
            why=found[0],
            next="free some space, or set HEXPORT_DATA (and TMPDIR) to folders on another disk; "
            "nothing was kept",
        )


def _check_pins(plan: Plan, sight: asking.Sight) -> None:
    """What pip reports as done must be in this environment: its settings can send packages elsewhere."""
    found = sight.versions
    wrong = [
        f"{name} {found.get(name, 'is not there')} instead of {version}"
        for name, version in plan.pins.items()
        if not _same(found.get(name), version)
    ]
    if wrong:
        raise ToolchainNotMade(
            "pip ended well, but the packages are not in the environment",
            why="; ".join(wrong),
            next="look at pip's settings (pip config list): target, prefix and user send packages elsewhere",
        )


def _same(found: str | None, wanted: str) -> bool:
    """As pip compares: 2.3 is 2.3.0, and a local part that was not asked for (+cpu) does not count."""
    if found is None:
        return False
    plain = found if "+" in wanted else found.partition("+")[0]
    return plain == wanted or facts.parse_version(plain) == facts.parse_version(wanted)


@contextmanager
def _disk_speaks(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Some of hexport's own errors are of Python's kinds, too.
        if isinstance(error, HexportError):
            raise
        _raise_for_room(str(error))
        raise ToolchainNotMade(
            f"the toolchain {name!r} could not be made in {toolchains_folder()}",
            why=str(error),
            next="see that the folder may be written to, or set HEXPORT_DATA to another",
        ) from error
