"""Folders that belong to a process: each has a lock beside it, ``NAME.lock``, which its maker holds.

A process that is killed cannot clean up, so the next one does. The lock is there before the folder and goes
after it: a folder whose lock can be taken has no maker any more.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexport.storage.locking import take

SUFFIX = ".lock"
_LETTERS = 16
"""Of a name: enough to be the only one, and few enough for systems with short paths."""


@contextmanager
def own_folder(area: Path, prefix: str = "") -> Iterator[Path]:
    """An empty folder in ``area`` that is gone afterwards, or after the next sweep if we are killed."""
    while True:
        folder = area / f"{prefix}{uuid.uuid4().hex[:_LETTERS]}"
        held = take(folder.with_suffix(SUFFIX))
        if held is not None:
            break  # else somebody sweeps at this moment, and looks at our new lock
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.release()


def sweep(area: Path, prefix: str = "") -> None:
    """Remove what processes left that are no more; ``prefix`` where not all of ``area`` is ours."""
    for folder in sorted({path.with_suffix("") for path in area.glob(f"{prefix}*")}):
        try:
            held = take(folder.with_suffix(SUFFIX))
        except OSError:
            continue
        if held is None:
            continue
        # Without locks nobody can tell the dead from the living, and nothing is swept.
        if held.guards:
            shutil.rmtree(folder, ignore_errors=True)
        held.release()
