"""Writing a package: it appears whole, or what was there before stays.

It is built in hexport's staging folder and moved into its place at the end:

* nothing there yet: one rename;
* a package there: the two folders change places in one step (Linux, macOS); elsewhere the old one is renamed
  out of the way first, and a process that is killed just then leaves none;
* the staging folder is on another file system: no rename reaches across, and a copy takes time in which a
  process can be killed. It goes into a hidden folder *inside* the package's own, where no reader looks and
  nothing lies beside the package. Then the old manifest goes, files move (renames, within one folder), and
  the new manifest comes last. Until the old manifest goes the old package is whole; a folder without a
  manifest is no package; and the next build clears what is left.

A full disk is met while building or copying, before anything old is touched.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hexport.errors import HexportError
from hexport.packaging.exchanging import exchange
from hexport.packaging.failures import PackageError, PackageNotWritten
from hexport.packaging.manifest import MANIFEST, Artefact, Manifest
from hexport.packaging.manifest_file import read_manifest, to_bytes
from hexport.packaging.reading import INCOMING, open_package
from hexport.packaging.staging import staging_folder, turn
from hexport.storage.keys import file_digest

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def package_aside(output: Path) -> Iterator[Path]:
    """A folder to build in; what it holds at the end, manifest included, becomes the package ``output``."""
    output = Path(os.path.abspath(output))  # noqa: PTH100 - a link stays what the user named
    refuse_place(output)
    with staging_folder() as stage:
        folder = stage / "new"
        folder.mkdir()
        try:
            yield folder
            _check_whole(folder)
            with turn(str(output)):  # two builds of one package: one after the other
                _install(folder, output, stage)
        except OSError as error:
            if isinstance(error, HexportError) or error.errno not in _NO_SPACE:
                raise
            raise PackageNotWritten(
                f"{output} was not written: the disk is full",
                why=str(error),
                next="make room; HEXPORT_CACHE moves the folder that packages are built in",
            ) from error


def artefact(
    folder: Path,
    path: str,
    role: str,
    *,
    targets: Sequence[str] = (),
    buckets: Sequence[str] = (),
    graphs: Sequence[str] = (),
    sha256: str = "",
) -> Artefact:
    """The entry of a file that is in ``folder`` by now; ``sha256`` where it is known what it should be."""
    file = folder / path
    digest = sha256 or file_digest(file)
    return Artefact(role, path, file.stat().st_size, digest, tuple(targets), tuple(buckets), tuple(graphs))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The last thing to do in the folder of :func:`package_aside`."""
    (folder / MANIFEST).write_bytes(to_bytes(manifest))


def refuse_place(output: Path) -> None:
    """Say at once, and not after the work, that no package can be put there."""
    if not output.parent.is_dir():
        raise PackageNotWritten(f"{output} cannot be written", why=f"there is no folder {output.parent}")
    if not os.access(output.parent, os.W_OK):
        raise PackageNotWritten(f"{output} cannot be written", why=f"{output.parent} may not be written to")
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise PackageNotWritten(
            f"{output} cannot be written", why="a link or a file is there", next="choose another -o"
        )
    if output.is_dir() and (stranger := _stranger(output)):
        raise PackageNotWritten(
            f"{output} is not replaced",
            why=f"it holds {stranger}, which is not of a package; replacing the folder would delete that",
            next="choose another -o, or move it away",
        )


def _stranger(folder: Path) -> str:
    """A file in ``folder`` that no package put there; empty when all are ours."""
    if (folder / MANIFEST).exists():
        try:
            ours = {MANIFEST, *(artefact.path for artefact in read_manifest(folder).artefacts)}
        except PackageError as error:
            return f"a {MANIFEST} that cannot be read ({error.why})"
    elif (folder / INCOMING).is_dir():
        return ""  # what a build left that was ended in the middle
    else:
        ours = set()
    # os.walk passes over a folder that another build moves away at this moment; rglob stops at it.
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for path in sorted(Path(place, name) for name in (*files, *links)):
            name = path.relative_to(folder).as_posix()
            if name not in ours and name.split("/", 1)[0] != INCOMING:
                return name
    return ""


def _check_whole(folder: Path) -> None:
    """A package that hexport itself would refuse is not written."""
    open_package(folder, verify=False)
    if stranger := _stranger(folder):
        raise PackageNotWritten(
            "the package is not written", why=f"its manifest does not name {stranger}, which is in it"
        )


def _install(folder: Path, output: Path, stage: Path) -> None:
    refuse_place(output)  # the world may have changed while we built
    try:
        try:
            _rename(folder, output, stage)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_inside(folder, output)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise
        raise PackageNotWritten(
            f"{output} cannot be written",
            why=str(error),
            next="is the old package in use by another program? close it, or choose another -o",
        ) from error


def _rename(folder: Path, output: Path, stage: Path) -> None:
    if not output.exists():
        folder.rename(output)
        return
    if exchange(folder, output):
        return  # the old one is in the staging folder now, and goes with it
    old = stage / "old"
    output.rename(old)
    try:
        folder.rename(output)
    except BaseException:
        old.rename(output)
        raise


def _copy_inside(folder: Path, output: Path) -> None:
    is_new = not output.exists()
    incoming = output / INCOMING
    try:
        shutil.rmtree(incoming, ignore_errors=True)
        _copy(folder, incoming)
    except BaseException:
        shutil.rmtree(output if is_new else incoming, ignore_errors=True)
        raise
    names = {path.name for path in incoming.iterdir()}
    try:
        _move_up(incoming, output, names)
    except (KeyboardInterrupt, SystemExit):
        # This takes no time: better the new package than none.
        _move_up(incoming, output, names)
        raise


def _copy(folder: Path, to: Path) -> None:
    """File by file: ``copytree`` gathers errors into one that no longer says that the disk is full."""
    to.mkdir(parents=True)
    for path in sorted(folder.rglob("*")):
        place = to / path.relative_to(folder)
        if path.is_dir():
            place.mkdir()
        else:
            shutil.copy2(path, place)


def _move_up(incoming: Path, output: Path, names: set[str]) -> None:
    """Renames only; can be begun again in the middle."""
    if (incoming / MANIFEST).exists():
        (output / MANIFEST).unlink(missing_ok=True)
    for old in output.iterdir():
        if old.name not in (*names, INCOMING):
            _delete(old)
    for new in sorted(incoming.iterdir(), key=lambda path: path.name == MANIFEST):
        _delete(output / new.name)
        new.rename(output / new.name)
    incoming.rmdir()


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
