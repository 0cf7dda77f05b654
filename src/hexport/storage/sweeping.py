"""Folders that belong to a process: each has a lock beside it, ``NAME.lock``, which its maker holds.

A process that is killed cannot clean up, so the next one does.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexport.storage.locking import take

SUFFIX = ".lock"


@contextmanager
def own_folder(area: Path) -> Iterator[Path]:
    """An empty folder in ``area`` that is gone afterwards, or after the next sweep if we are killed."""
    while True:
        folder = area / uuid.uuid4().hex
        held = take(folder.with_suffix(SUFFIX))
        if held is not None:
            break  # else somebody sweeps at this moment, and looks at our new lock
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.release()


def sweep(area: Path) -> None:
    """Remove what processes left that are no more."""
    for path in area.glob(f"*{SUFFIX}"):
        try:
            held = take(path)
        except OSError:
            continue
        if held is None:
            continue
        # Without locks nobody can tell the dead from the living, and nothing is swept.
        if held.guards:
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        held.release()
