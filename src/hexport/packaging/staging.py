"""Where packages are built: a folder of hexport's own, so that nothing half-made lies beside the real one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hexport.packaging.failures import PackageNotWritten
from hexport.storage.locking import exclusive
from hexport.storage.place import staging_area
from hexport.storage.sweeping import SUFFIX, own_folder, sweep


@contextmanager
def staging_folder() -> Iterator[Path]:
    """An empty folder that is gone afterwards, or after the next use if this process is killed."""
    area = staging_area()
    with ExitStack() as stack:
        try:
            area.mkdir(parents=True, exist_ok=True)
            sweep(area)
            folder = stack.enter_context(own_folder(area))
        except OSError as error:
            raise PackageNotWritten(
                "there is no place to build in",
                why=str(error),
                next="set HEXPORT_CACHE to a folder that can be written, best on the disk of the output",
            ) from error
        yield folder


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Wait until no other process of this user is in here with the same name."""
    with exclusive(staging_area() / f"{hashlib.sha256(name.encode()).hexdigest()}{SUFFIX}"):
        yield
