"""Folders for work that is under way, all in one place, from which the next command removes what is left.

``tempfile`` removes a folder when its process ends by itself. A process that is killed leaves it, with copies
of models in it. Here each folder has a lock that dies with its process; see ``sweeping.py``.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexport.storage.place import temporary_area
from hexport.storage.sweeping import own_folder, sweep

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_swept: set[Path] = set()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """An empty folder that is gone afterwards, whatever becomes of this process."""
    area = temporary_area()
    if not _is_ours(area):
        # Somebody else has a folder of that name: what we leave there, if we are killed, is not found again.
        with tempfile.TemporaryDirectory(prefix="hexport-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    if area not in _swept:
        _swept.add(area)
        sweep(area)
    with own_folder(area) as folder:
        yield folder


def sweep_temporary() -> None:
    """Remove what killed processes left."""
    area = temporary_area()
    if area.is_dir() and _is_ours(area):
        sweep(area)


def _is_ours(area: Path) -> bool:
    """Whether it is a folder, made now if need be, that nobody else can put anything into."""
    with contextlib.suppress(FileExistsError):  # by us or by somebody
        area.mkdir(mode=0o700)
    found = area.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    if sys.platform == "win32":
        return True  # the temporary folder is the user's own there
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE
