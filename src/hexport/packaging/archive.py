"""A package as one zip for transport: the same bytes every time, and unpacked only if it is what it says.

A zip from elsewhere is an attack until proven otherwise. Its manifest is read first, within a limit. After
that only files that the manifest names are unpacked, each to its declared size at most, each compared with
its SHA-256 while it is written, and none that swells to more than ``MOST_SWELLING`` times its packed size.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hexport.packaging.failures import PackageTampered, UnsafeArchive
from hexport.packaging.manifest import MANIFEST, Artefact, Manifest
from hexport.packaging.manifest_file import MOST_BYTES, from_bytes
from hexport.packaging.reading import Package, open_package
from hexport.packaging.relative_path import check_relative_path
from hexport.packaging.writing import package_aside
from hexport.whole_file import refuse_missing_folder, whole_or_absent

MOST_SWELLING = 100
"""Real weights shrink by a third. Zeros shrink a thousandfold, and nobody ships those."""
_SMALL = 2**20
"""Below this a file may swell as it likes: JSON does, and it harms nobody."""
_PIECE = 2**20
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_MODE = (stat.S_IFREG | 0o644) << 16
_ENCRYPTED = 0x1


def pack(package: str | Path, output: str | Path) -> Path:
    """Write the package in one zip, after every file was compared with the manifest."""
    opened, output = open_package(package), Path(output)
    refuse_missing_folder(output)
    names = [MANIFEST, *sorted(artefact.path for artefact in opened.manifest.artefacts)]
    with whole_or_absent(output) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            # Nothing of this machine goes in: no dates, owners or modes.
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = _UNIX, _MODE
            file = opened.folder / name
            entry.file_size = file.stat().st_size
            with file.open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target, _PIECE)
    return output


def read_packed(path: str | Path) -> Manifest:
    """The manifest of a packed package; nothing is unpacked."""
    with _opened(Path(path)) as archive:
        return _survey(Path(path), archive)[0]


def unpack(path: str | Path, output: str | Path) -> Package:
    """The package that a zip holds, as the folder ``output``: whole, or not at all."""
    path, output = Path(path), Path(output)
    with _opened(path) as archive:
        manifest, entries = _survey(path, archive)
        with package_aside(output) as folder:
            _refuse_without_room(path, manifest, folder)
            for artefact in manifest.artefacts:
                _extract(path, archive, entries[artefact.path], artefact, folder / artefact.path)
            (folder / MANIFEST).write_bytes(_manifest_bytes(path, archive, entries[MANIFEST]))
    return open_package(output, verify=False)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        _refuse(path, f"the zip is damaged or of an odd kind: {error}")
    except OSError as error:
        if error.filename != str(path):
            raise  # of the output
        _refuse(path, f"it cannot be read: {error.strerror}")


def _survey(path: Path, archive: zipfile.ZipFile) -> tuple[Manifest, dict[str, zipfile.ZipInfo]]:
    """The manifest and the entries, when they are of each other and nothing is odd about them."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        _check_entry(path, entry)
        if entry.is_dir():
            continue
        if entry.filename in entries:
            _refuse(path, f"{entry.filename!r} is in it twice")
        entries[entry.filename] = entry
    if MANIFEST not in entries:
        _refuse(path, f"it holds no {MANIFEST}: it is no packed package")
    # Entries that share their bytes swell without any of them swelling much by itself.
    if sum(entry.compress_size for entry in entries.values()) > path.stat().st_size:
        _refuse(path, "its files take more bytes than the zip has: they overlap")
    manifest = from_bytes(_manifest_bytes(path, archive, entries[MANIFEST]), f"{path}:{MANIFEST}")
    sizes = {artefact.path: artefact.bytes for artefact in manifest.artefacts}
    if strangers := sorted(set(entries) - set(sizes) - {MANIFEST}):
        _refuse(path, f"its manifest does not name {strangers[0]!r}")
    if missing := sorted(set(sizes) - set(entries)):
        _refuse(path, f"{missing[0]!r} is missing from it")
    for name, size in sizes.items():
        if entries[name].file_size != size:
            _refuse(path, f"{name!r} has {entries[name].file_size} bytes in the zip, {size} in the manifest")
    return manifest, entries


def _check_entry(path: Path, entry: zipfile.ZipInfo) -> None:
    # ZipInfo cuts the name at a NUL and turns backslashes on Windows; what the file says is what counts.
    check_relative_path(entry.orig_filename.removesuffix("/") or "/", str(path))
    kind = stat.S_IFMT(entry.external_attr >> 16) if entry.create_system == _UNIX else 0
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        _refuse(path, f"{entry.filename!r} is a link or a device")
    if entry.flag_bits & _ENCRYPTED:
        _refuse(path, f"{entry.filename!r} is encrypted")
    if entry.file_size > _SMALL and entry.file_size > MOST_SWELLING * entry.compress_size:
        ratio = entry.file_size // max(entry.compress_size, 1)
        _refuse(path, f"{entry.filename!r} would swell {ratio} times; more than {MOST_SWELLING} is a bomb")


def _manifest_bytes(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as source:
        data = source.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        _refuse(path, f"its {MANIFEST} is larger than {MOST_BYTES >> 20} MiB")
    return data


def _refuse_without_room(path: Path, manifest: Manifest, folder: Path) -> None:
    needed, free = sum(artefact.bytes for artefact in manifest.artefacts), shutil.disk_usage(folder).free
    if needed > free:
        _refuse(path, f"it unpacks to {needed} bytes, and {free} are free")


def _extract(
    path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, artefact: Artefact, file: Path
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with archive.open(entry) as source, file.open("xb") as target:
        # zipfile stops at the size that the zip declares, which was compared with the manifest's.
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > artefact.bytes:
                _refuse(path, f"{artefact.path!r} unpacks to more than the {artefact.bytes} bytes it says")
            digest.update(piece)
            target.write(piece)
    if size != artefact.bytes or digest.hexdigest() != artefact.sha256:
        raise PackageTampered(
            f"{artefact.path} in {path} is not the file that was packaged",
            why=f"its SHA-256 is {digest.hexdigest()}; the manifest says {artefact.sha256}",
            next="do not use it; fetch the archive again",
        )


def _refuse(path: Path, why: str) -> NoReturn:
    raise UnsafeArchive(
        f"{path} is not unpacked", why=why, next="do not use it; fetch it again from where it was packed"
    )
