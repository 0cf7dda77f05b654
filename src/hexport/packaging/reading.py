"""Opening a package: nothing in it is believed before it was looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hexport.packaging.failures import NotAPackage, PackageIncomplete, PackageTampered
from hexport.packaging.manifest import MANIFEST, Artefact, Manifest
from hexport.packaging.manifest_file import read_manifest
from hexport.packaging.relative_path import inside
from hexport.storage.keys import file_digest

INCOMING = ".hexport-incoming"
"""In a package's folder: what a build was copying there when it was ended. See ``writing.py``."""


@dataclass(frozen=True)
class Package:
    """A package whose files are all there with the right sizes."""

    folder: Path
    manifest: Manifest
    _verified: set[str] = field(default_factory=set, repr=False, compare=False)

    def find(
        self, role: str, *, target: str | None = None, bucket: str | None = None
    ) -> tuple[Artefact, ...]:
        """The files of that role which serve this target and bucket; those for all serve any."""
        return tuple(
            artefact
            for artefact in self.manifest.artefacts
            if artefact.role == role
            and (target is None or not artefact.targets or target in artefact.targets)
            and (bucket is None or not artefact.buckets or bucket in artefact.buckets)
        )

    def path(self, artefact: Artefact) -> Path:
        """Where the file is. Its content was not looked at: see :meth:`verified`."""
        return inside(self.folder, artefact.path, str(self.folder / MANIFEST))

    def verified(self, *artefacts: Artefact) -> tuple[Path, ...]:
        """Where the files are, after their content was compared with the manifest; each once only."""
        self.verify(artefacts)
        return tuple(self.path(artefact) for artefact in artefacts)

    def verify(self, artefacts: Iterable[Artefact] | None = None) -> None:
        """Compare the content of these files, or of all, with the manifest."""
        chosen = self.manifest.artefacts if artefacts is None else artefacts
        waiting = [artefact for artefact in chosen if artefact.path not in self._verified]
        # The largest first: one thread a file, and hashing lets the others run.
        waiting.sort(key=lambda artefact: -artefact.bytes)
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as threads:
            for artefact in threads.map(self._compare, waiting):
                self._verified.add(artefact.path)

    def _compare(self, artefact: Artefact) -> Artefact:
        path = self._check_size(artefact)
        try:
            digest = file_digest(path)
        except OSError as error:
            raise PackageIncomplete(f"{path} cannot be read", why=str(error)) from error
        if digest != artefact.sha256:
            raise PackageTampered(
                f"{path} is not the file that was packaged",
                why=f"its SHA-256 is {digest}; the manifest says {artefact.sha256}",
                next="do not use it; copy the package again, or build it again",
            )
        return artefact

    def _check_size(self, artefact: Artefact) -> Path:
        path = self.path(artefact)
        try:
            found = path.stat()
        except OSError as error:
            raise PackageIncomplete(
                f"{artefact.path} is missing from {self.folder}",
                why=str(error),
                next="copy the whole folder again, or build the package again",
            ) from error
        # Reading a pipe would wait for ever.
        if not stat.S_ISREG(found.st_mode):
            raise PackageIncomplete(f"{path} is not a file", why=f"the manifest names it as {artefact.role}")
        if found.st_size != artefact.bytes:
            raise PackageIncomplete(
                f"{path} has {found.st_size} bytes",
                why=f"the manifest says {artefact.bytes}; it is cut short or another file",
                next="copy the whole folder again, or build the package again",
            )
        return path


def open_package(path: str | Path, *, verify: bool = True) -> Package:
    """The package in a folder, or the error that says why it is refused.

    Without ``verify`` only names and sizes are looked at, and whoever uses a file asks for it with
    :meth:`Package.verified`: a program that loads one binary of ten need not hash them all.
    """
    folder = Path(path)
    _refuse_what_is_no_folder(folder)
    package = Package(folder, read_manifest(folder))
    for artefact in package.manifest.artefacts:
        package._check_size(artefact)
    if verify:
        package.verify()
    return package


def _refuse_what_is_no_folder(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        raise NotAPackage(
            f"{path} is a file",
            why="a package is a folder" + (", and this may be a packed one" if zipped else ""),
            next=f"hexport pack --unpack '{path}' -o '{path.with_suffix('')}'" if zipped else "",
        )
    if not path.is_dir():
        raise NotAPackage(f"{path} does not exist", why="a package is a folder", next="check the path")
    if (path / INCOMING).exists() and not (path / MANIFEST).exists():
        raise NotAPackage(
            f"{path} is not a package",
            why="a build was ended while it copied one to this place",
            next="run the same build again: it begins where its cache ends, and clears what is left here",
        )
